"""What is measured on a GPU, beside torch and cuBLAS in the same run; run by `polyfuse gpu-bench`."""
