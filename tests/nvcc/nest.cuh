// SPDX-License-Identifier: MIT
// What kernels are written in that cuda_c.c makes of nests: the instructions of src/kernel/nest.h as functions on scalars and
// vectors, each as plain as it is there. For nvcc --fmad=false: what is to be contracted says so (fma).
#pragma once

typedef long long i64;
typedef signed char i8;
typedef unsigned char u8;

#define DEVICE template <typename T> __device__ __forceinline__
#define DEVICES template <typename T, int N> __device__ __forceinline__
#define LANES _Pragma("unroll") for (int i = 0; i < N; i++)

template <typename T, int N> struct vec {
    T at[N];
};

// --- values ----------------------------------------------------------------------------------------------

template <int N, typename T> __device__ __forceinline__ vec<T, N> splat(T a) {
    vec<T, N> y;
    LANES y.at[i] = a;
    return y;
}

template <int N> __device__ __forceinline__ vec<i64, N> lanes() {
    vec<i64, N> y;
    LANES y.at[i] = i;
    return y;
}

__device__ __forceinline__ unsigned positive(int a) {
    return a;
}
__device__ __forceinline__ unsigned long long positive(i64 a) {
    return a;
}

// An operator of one, two operands, lane by lane.
#define UNARY(name, expression)                                                                              \
    DEVICE auto name(T a) {                                                                                  \
        return expression;                                                                                   \
    }                                                                                                        \
    DEVICES auto name(vec<T, N> a) {                                                                         \
        vec<decltype(name(a.at[0])), N> y;                                                                   \
        LANES y.at[i] = name(a.at[i]);                                                                       \
        return y;                                                                                            \
    }
#define BINARY(name, expression)                                                                             \
    DEVICE auto name(T a, T b) {                                                                             \
        return expression;                                                                                   \
    }                                                                                                        \
    DEVICES auto name(vec<T, N> a, vec<T, N> b) {                                                            \
        vec<decltype(name(a.at[0], b.at[0])), N> y;                                                          \
        LANES y.at[i] = name(a.at[i], b.at[i]);                                                              \
        return y;                                                                                            \
    }

UNARY(op_neg, (T)-a)
UNARY(op_abs, (T)(a < 0 ? -a : a))
UNARY(op_not, (T)(!a))
UNARY(op_sqrt, (T)sqrtf(a))
UNARY(op_exp, (T)expf(a))
UNARY(op_log, (T)logf(a))
UNARY(op_tanh, (T)tanhf(a))
UNARY(op_erf, (T)erff(a))
UNARY(op_floor, (T)floorf(a))
UNARY(op_sigmoid, (T)(1 / (1 + expf(-a))))
BINARY(op_add, (T)(a + b))
BINARY(op_sub, (T)(a - b))
BINARY(op_mul, (T)(a * b))
BINARY(op_div, (T)(a / b))
BINARY(op_pow, (T)powf(a, b))
// What is no number, in either operand, is the result.
BINARY(op_min, !(a > b) ? (b != b ? b : a) : b)
BINARY(op_max, !(a < b) ? (b != b ? b : a) : b)
BINARY(op_and, (T)(a & b))
BINARY(op_or, (T)(a | b))
BINARY(op_xor, (T)(a ^ b))
BINARY(op_shl, (T)(a << b))
BINARY(op_shr, (T)(a >> b))
BINARY(op_eq, a == b)
BINARY(op_lt, a < b)
BINARY(op_le, a <= b)
// Of indices that are not negative.
BINARY(idiv, (T)(positive(a) / positive(b)))
BINARY(imod, (T)(positive(a) % positive(b)))

__device__ __forceinline__ float fused(float a, float b, float c) {
    return __fmaf_rn(a, b, c);
}
DEVICES vec<T, N> fused(vec<T, N> a, vec<T, N> b, vec<T, N> c) {
    vec<T, N> y;
    LANES y.at[i] = fused(a.at[i], b.at[i], c.at[i]);
    return y;
}

DEVICE T op_select(bool condition, T a, T b) {
    return condition ? a : b;
}
DEVICES vec<T, N> op_select(vec<bool, N> condition, vec<T, N> a, vec<T, N> b) {
    vec<T, N> y;
    LANES y.at[i] = condition.at[i] ? a.at[i] : b.at[i];
    return y;
}

template <typename To, typename T> __device__ __forceinline__ To cast(T a) {
    return (To)a;
}
template <typename To, typename T, int N> __device__ __forceinline__ vec<To, N> cast(vec<T, N> a) {
    vec<To, N> y;
    LANES y.at[i] = (To)a.at[i];
    return y;
}

// --- reductions: of lanes, halves first; of so many neighbouring threads, in the tree of nest.h ------------

#define REDUCTION(name)                                                                                      \
    DEVICES T hreduce_##name(vec<T, N> a) {                                                                  \
        if constexpr (N == 1) {                                                                              \
            return a.at[0];                                                                                  \
        } else {                                                                                             \
            constexpr int half = (N + 1) / 2;                                                                \
            vec<T, half> y;                                                                                  \
            _Pragma("unroll") for (int i = 0; i < half; i++) y.at[i] =                                       \
                i + half < N ? op_##name(a.at[i], a.at[i + half]) : a.at[i];                                 \
            return hreduce_##name(y);                                                                        \
        }                                                                                                    \
    }                                                                                                        \
    template <int COUNT, typename T> __device__ __forceinline__ T reduce_##name(T a) {                       \
        _Pragma("unroll") for (int bit = COUNT / 2; bit; bit /= 2) {                                         \
            const T other = __shfl_xor_sync(~0u, a, bit);                                                    \
            const bool upper = threadIdx.x & bit;                                                            \
            a = op_##name(upper ? other : a, upper ? a : other);                                             \
        }                                                                                                    \
        return a;                                                                                            \
    }

REDUCTION(add)
REDUCTION(mul)
REDUCTION(min)
REDUCTION(max)
REDUCTION(and)
REDUCTION(or)

// --- memory: neighbours from an address on, at a multiple of all of them or of one -------------------------

template <typename T, int N> struct alignas(sizeof(T) * N) aligned {
    T at[N];
};

template <int N, typename T> __device__ __forceinline__ vec<T, N> load(const T *from) {
    vec<T, N> y;
    if constexpr (sizeof(T) == 4 && N == 4) {
        const float4 x = *(const float4 *)from;
        *(float4 *)&y = x;
    } else {
        const aligned<T, N> x = *(const aligned<T, N> *)from;
        LANES y.at[i] = x.at[i];
    }
    return y;
}
template <int N, typename T> __device__ __forceinline__ vec<T, N> load_one_by_one(const T *from) {
    vec<T, N> y;
    LANES y.at[i] = from[i];
    return y;
}
template <int N, typename T> __device__ __forceinline__ vec<T, N> load_if(const T *from, vec<bool, N> mask) {
    vec<T, N> y;
    LANES y.at[i] = mask.at[i] ? from[i] : T();
    return y;
}
DEVICE T load_if(const T *from, bool mask) {
    return mask ? *from : T();
}
template <int N, typename T>
__device__ __forceinline__ vec<T, N> gather(const T *from, vec<i64, N> at, vec<bool, N> mask) {
    vec<T, N> y;
    LANES y.at[i] = mask.at[i] ? from[at.at[i]] : T();
    return y;
}

DEVICES void store(T *to, vec<T, N> a) {
    if constexpr (sizeof(T) == 4 && N == 4) {
        *(float4 *)to = *(const float4 *)&a;
    } else {
        aligned<T, N> x;
        LANES x.at[i] = a.at[i];
        *(aligned<T, N> *)to = x;
    }
}
DEVICES void store_one_by_one(T *to, vec<T, N> a) {
    LANES to[i] = a.at[i];
}
DEVICES void store_if(T *to, vec<T, N> a, vec<bool, N> mask) {
    LANES if (mask.at[i]) to[i] = a.at[i];
}
DEVICE void store_if(T *to, T a, bool mask) {
    if (mask) *to = a;
}
DEVICES void scatter(T *to, vec<i64, N> at, vec<T, N> a, vec<bool, N> mask) {
    LANES if (mask.at[i]) to[at.at[i]] = a.at[i];
}

// --- copies that nobody waits for: as NVIDIA's own header has them (cuda_pipeline_helpers.h), with zeros by a condition ----

template <int BYTES> __device__ __forceinline__ void copy(void *to, const void *from) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(BYTES));
}
template <int BYTES> __device__ __forceinline__ void copy_if(void *to, const void *from, bool condition) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(to), read = condition ? BYTES : 0;
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(read));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(BYTES), "r"(read));
}
__device__ __forceinline__ void commit() {
    asm volatile("cp.async.commit_group;");
}
template <int LEFT> __device__ __forceinline__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT));
}

// --- the kernel's range of chunks, a block's or a thread's; being asked to stop ----------------------------

template <typename T, bool BLOCKS> __device__ __forceinline__ T begin_of(const i64 *record) {
    const T number = BLOCKS ? (T)blockIdx.x : (T)blockIdx.x * (T)blockDim.x + (T)threadIdx.x, end = (T)record[1],
            from = (T)record[0] + number * (T)record[2];
    return from < end ? from : end;
}
template <typename T, bool BLOCKS> __device__ __forceinline__ T end_of(const i64 *record) {
    const T end = (T)record[1], to = begin_of<T, BLOCKS>(record) + (T)record[2];
    return to < end ? to : end;
}
__device__ __forceinline__ bool stopped(int *words) {
    volatile int *const w = words;
    if (!(w[0] | w[1])) return false;
    w[1] = 1;
    return true;
}
