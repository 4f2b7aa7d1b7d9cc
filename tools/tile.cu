// SPDX-License-Identifier: MIT
// A product in the tiles of src/kernel/gpu/tile.h, as one writes it for nvcc: what tools/ptx_loops.py --nvcc compares our
// machine code with. ROWS x 4 VECTORS results a thread, DOWN x ACROSS threads, SLICES of them for the TERMS of a k-tile;
// sizes are multiples of the tile's.
#include <cuda_pipeline.h>

enum { M = ROWS * DOWN, N = 4 * VECTORS * ACROSS, OF_SLICE = DOWN * ACROSS, THREADS = OF_SLICE * SLICES };
enum { OWN = TERMS / SLICES, PAD = 4, LANES = THREADS / TERMS > 4 ? THREADS / TERMS : 4, KEPT = ROWS / SLICES };
enum { PITCH_A = TERMS + PAD, PITCH_B = N + PAD, HALF_A = M * PITCH_A, HALF_B = TERMS * PITCH_B };
enum { OPERANDS = 2 * (HALF_A + HALF_B), SUMS = SLICES > 1 ? SLICES * M * N : 0 };

__device__ int line_of(int first, int p) {
    return first + p / 4 * 4 * DOWN + p % 4;
}

__device__ int apart(int line) {
    return (line & ~7) | (line & 1) << 2 | (line >> 1 & 3);
}

__global__ void __launch_bounds__(THREADS, 1) product(const float *__restrict__ a, const float *__restrict__ b,
                                                      float *__restrict__ y, int n, int k) {
    __shared__ __align__(16) float memory[OPERANDS > SUMS ? OPERANDS : SUMS];
    float *const first = memory, *const second = memory + 2 * HALF_A;
    const int t = threadIdx.x, slice = t / OF_SLICE, u = t % OF_SLICE, row = blockIdx.y * M, column = blockIdx.x * N;
    const int line_a = 4 * ((u & 1) | u / (2 * ACROSS) << 1), line_b = 4 * (u / 2 % ACROSS);
    float sum[ROWS][4 * VECTORS] = {};
    auto copy = [&](int half, int from) {
        const int line = apart(t / 4), at = t % 4 * 4, term = LANES == 4 ? apart(t / LANES) : t / LANES,
                  other = t % LANES * 4;
#pragma unroll
        for (int i = 0; i < M; i += THREADS / 4)
#pragma unroll
            for (int j = 0; j < TERMS; j += 16)
                __pipeline_memcpy_async(&first[half * HALF_A + (i + line) * PITCH_A + j + at],
                                        &a[(row + i + line) * k + from + j + at], 16);
#pragma unroll
        for (int j = 0; j < TERMS; j += THREADS / LANES)
#pragma unroll
            for (int i = 0; i < N; i += 4 * LANES)
                __pipeline_memcpy_async(&second[half * HALF_B + (j + term) * PITCH_B + i + other],
                                        &b[(from + j + term) * n + column + i + other], 16);
        __pipeline_commit();
    };
    copy(0, 0);
    for (int from = 0, half = 0; from < k; from += TERMS, half ^= 1) {
        __pipeline_wait_prior(0);
        __syncthreads();
        if (from + TERMS < k) copy(half ^ 1, from + TERMS);
        const float *own_a = first + half * HALF_A + slice * OWN, *own_b = second + half * HALF_B + slice * OWN * PITCH_B;
#pragma unroll
        for (int j = 0; j < OWN; j += 4) {
            float x[ROWS][4], z[4 * VECTORS];
#pragma unroll
            for (int p = 0; p < ROWS; p++)
                *(float4 *)x[p] = *(const float4 *)&own_a[line_of(line_a, p) * PITCH_A + j];
#pragma unroll
            for (int r = 0; r < 4; r++) {
#pragma unroll
                for (int i = 0; i < VECTORS; i++)
                    *(float4 *)&z[4 * i] = *(const float4 *)&own_b[(j + r) * PITCH_B + line_b + 4 * ACROSS * i];
#pragma unroll
                for (int p = 0; p < ROWS; p++)
#pragma unroll
                    for (int q = 0; q < 4 * VECTORS; q++) sum[p][q] = fmaf(x[p][r], z[q], sum[p][q]);
            }
        }
    }
    if (SLICES > 1) {
        __syncthreads();
#pragma unroll
        for (int p = 0; p < ROWS; p++)
#pragma unroll
            for (int i = 0; i < VECTORS; i++)
                *(float4 *)&memory[(((slice * ROWS + p) * VECTORS + i) * OF_SLICE + u) * 4] = *(float4 *)&sum[p][4 * i];
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        const int p = slice * KEPT + i, to = (row + line_of(line_a, p)) * n + column + line_b;
#pragma unroll
        for (int q = 0; q < 4 * VECTORS; q++) {
            float all = SLICES > 1 ? 0 : sum[i][q];
#pragma unroll
            for (int s = 0; s < (SLICES > 1 ? SLICES : 0); s++)
                all += memory[(((s * ROWS + p) * VECTORS + q / 4) * OF_SLICE + u) * 4 + q % 4];
            y[to + q / 4 * 4 * ACROSS + q % 4] = fmaxf(all, 0);
        }
    }
}
