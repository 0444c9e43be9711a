"""LSTM, GRU and RNN: operations, functions on values, layers."""
