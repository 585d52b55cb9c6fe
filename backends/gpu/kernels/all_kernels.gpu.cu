// Every kernel in one module: what the program carries. Each file compiles alone too.

#include "backends/gpu/kernels/attention.gpu.cu"
#include "backends/gpu/kernels/attention_backward.gpu.cu"
#include "backends/gpu/kernels/attention_rows.gpu.cu"
#include "backends/gpu/kernels/device_tests.gpu.cu"
#include "backends/gpu/kernels/elementwise.gpu.cu"
#include "backends/gpu/kernels/embedding.gpu.cu"
#include "backends/gpu/kernels/heads.gpu.cu"
#include "backends/gpu/kernels/loss.gpu.cu"
#include "backends/gpu/kernels/matmul.gpu.cu"
#include "backends/gpu/kernels/norm.gpu.cu"
#include "backends/gpu/kernels/optimizer.gpu.cu"
#include "backends/gpu/kernels/reduce.gpu.cu"
