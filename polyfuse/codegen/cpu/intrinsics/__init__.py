"""Operations that emitted CPU source calls, written as LLVM code."""
