// SPDX-License-Identifier: MIT
// A product in the tiles of src/kernel/gpu/tile.h, as one writes it for nvcc: what tools/ptx_loops.py --nvcc compares our
// machine code with. ROWS x 4 VECTORS results a thread, DOWN warps below each other, TERMS terms to a k-tile; sizes are
// multiples of the tile's.
#include <cuda_pipeline.h>

enum { M = 4 * ROWS * DOWN, N = 32 * VECTORS, THREADS = 32 * DOWN, PAD = 4 };

__global__ void __launch_bounds__(THREADS, 1) product(const float *__restrict__ a, const float *__restrict__ b,
                                                      float *__restrict__ y, int n, int k) {
    __shared__ float first[2][TERMS][M + PAD], second[2][TERMS][N + PAD];
    const int t = threadIdx.x, lane = t % 32, row = blockIdx.y * M, column = blockIdx.x * N;
    const int line_a = t / 32 * 4 * ROWS + ((lane & 1) | (lane >> 4) << 1) * 4, line_b = (lane >> 1 & 7) * 4;
    float sum[ROWS][4 * VECTORS] = {};
    auto copy = [&](int half, int from) {
#pragma unroll
        for (int i = 0; i < M; i += THREADS / 8)
#pragma unroll
            for (int j = 0; j < TERMS; j += 8)
                __pipeline_memcpy_async(&first[half][j + t % 8][i + t / 8],
                                        &a[(row + i + t / 8) * k + from + j + t % 8], 4);
#pragma unroll
        for (int j = 0; j < TERMS; j += THREADS / (N / 4))
            __pipeline_memcpy_async(&second[half][j + t / (N / 4)][t % (N / 4) * 4],
                                    &b[(from + j + t / (N / 4)) * n + column + t % (N / 4) * 4], 16);
        __pipeline_commit();
    };
    copy(0, 0);
    for (int from = 0, half = 0; from < k; from += TERMS, half ^= 1) {
        __pipeline_wait_prior(0);
        __syncthreads();
        if (from + TERMS < k) copy(half ^ 1, from + TERMS);
#pragma unroll
        for (int j = 0; j < TERMS; j++) {
            float x[ROWS], z[4 * VECTORS];
#pragma unroll
            for (int i = 0; i < ROWS; i += 4)
                *(float4 *)&x[i] = *(const float4 *)&first[half][j][line_a + 4 * i];
#pragma unroll
            for (int i = 0; i < VECTORS; i++)
                *(float4 *)&z[4 * i] = *(const float4 *)&second[half][j][line_b + 32 * i];
#pragma unroll
            for (int p = 0; p < ROWS; p++)
#pragma unroll
                for (int q = 0; q < 4 * VECTORS; q++) sum[p][q] = fmaf(x[p], z[q], sum[p][q]);
        }
    }
#pragma unroll
    for (int p = 0; p < ROWS; p++)
#pragma unroll
        for (int q = 0; q < 4 * VECTORS; q++)
            y[(row + line_a + p / 4 * 16 + p % 4) * n + column + line_b + q / 4 * 32 + q % 4] = fmaxf(sum[p][q], 0);
}
