/* One token more of some rows, or one source, through a whole stack of blocks in one call.
 *
 * The same as layers/bare.py, by the same weights: there a token passes through a hundred small operations, each of which takes
 * longer to call than to compute. Letters are the project's: B rows, D model width, H heads, K heads of keys and values, d_k, d_v,
 * F inner width, T and S tokens that are looked at, V vocabulary. All numbers are float32, all matrices row after row.
 * layers/compiled.py has the same structures. What is computed stands in kernels.h.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FINE, NO_SUCH_TOKEN, NO_SUCH_PLACE, NO_MEMORY };
enum { RELU, GELU, GELU_TANH, SILU };
enum { PLAIN, AVX2, AVX512 };

typedef struct {
    const float *weight, *bias; /* (inputs, outputs), or none where there is no such map; (outputs) or none */
    int64_t inputs, outputs;
} Linear;

typedef struct {
    const float *weight, *bias; /* (D), or none where there is no normalisation; (D) or none */
    float epsilon;
    int32_t centred; /* LayerNorm; else RMSNorm */
} Norm;

typedef struct {
    Norm norms[3];     /* of self-attention, cross-attention, FFN */
    Linear joined, o;  /* self-attention: all queries, scaled by 1 / √d_k, then each head's keys beside its values; what is made of z */
    Linear q, cross_o; /* cross-attention */
    Linear w1, w2, w3; /* FFN; w3 is SwiGLU's */
} Block;

typedef struct {
    const Block *blocks;
    int64_t depth, width, heads, kv_heads, d_k, d_v, inner;
    int32_t post, activation;
    const float *tokens, *positions; /* (V, D); (places, D), or none */
    const float *cos, *sin;          /* (places, d_k / 2) where positions turn queries and keys, or none */
    int64_t vocabulary, places;
    float scale; /* of tokens */
    Norm last;
} Stack;

typedef struct {
    const float *both; /* keys beside values of N sources (N, S, K, d_k + d_v) */
    int64_t steps[3];  /* from one source, head and place to the next */
} Source;

typedef struct {
    int64_t rows, length;                 /* B; tokens that are known of each row */
    float *own;                           /* (L, slots, K, room, d_k + d_v): keys beside values; none: all rows are one source's */
    int64_t slots, room;
    const int32_t *trails;                /* (B, room): the slot of each token of a row */
    const Source *sources;                /* of each block, or none */
    const int32_t *looked_at;             /* (B): which of the N sources */
    const float *bias;                    /* (N, S), added to scores, or none */
    int64_t source_length;                /* S */
} Known;

typedef struct {
    const int64_t *never; /* tokens that may not follow, so many */
    int64_t count, eos;
    const uint8_t *ends; /* (B): whether nothing but <eos> may follow; none: nowhere */
} Rules;

typedef struct {
    float total, log_prob;
    int64_t place; /* among K · V */
} Best;

typedef struct {
    float *all, *normed, *joined, *z, *inner, *gate, *scores;
} Room; /* for what is computed on the way */

/* Sixteen numbers at a time: GCC and Clang make of them what the processor has. Without such vectors PyTorch computes. */
#define LANES 16
#define PANEL (4 * LANES)
#define ANYWHERE __attribute__((vector_size(4 * LANES), aligned(4), may_alias))
typedef float Lanes ANYWHERE;
typedef int32_t Counts ANYWHERE;
#ifdef __clang__
#define IN_ORDER(x, ...) __builtin_shufflevector(x, x, __VA_ARGS__)
#else
#define IN_ORDER(x, ...) __builtin_shuffle(x, (Counts){__VA_ARGS__})
#endif

#define TARGET
#define NAME(name) name##_plain
#define SUMS 6
#include "kernels.h"

#ifdef __x86_64__ /* whose processors differ most */
#undef TARGET
#undef NAME
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(name) name##_avx2
#include "kernels.h"

#undef TARGET
#undef NAME
#undef SUMS
#define TARGET __attribute__((target("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw")))
#define NAME(name) name##_avx512
#define SUMS 24
#include "kernels.h"

static int kind_here(void) {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return PLAIN;
    const int wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
    return wide && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") ? AVX512 : AVX2;
}
#define FITTING(name) (kind() == AVX512 ? name##_avx512 : kind() == AVX2 ? name##_avx2 : name##_plain)
#else
static int kind_here(void) { return PLAIN; }
#define FITTING(name) name##_plain
#endif

static int newest = AVX512;

static int kind(void) { return kind_here() < newest ? kind_here() : newest; }

/* Which kind of processor this is held for; none newer than that, for tests of the older ones. */
int compiled_kind(int held_for) {
    newest = held_for;
    return kind();
}

/* x (B, D) gets the last states of these tokens, one of each row, or all of one source. What was wrong, or FINE. */
int compiled_pass(const Stack *s, const int64_t *ids, const Known *known, float *x) { return FITTING(pass)(s, ids, known, x); }

/* y (rows, outputs) = x W + b, W in panels. */
void compiled_panels(const Linear *l, const float *x, int64_t rows, float *y) { FITTING(multiply_panels)(l, x, rows, y); }

/* The `count` best of what may follow each of B inputs, by log softmax(x) + before, of x (B · K, V) and before (B · K): (B, count),
 * the best first. Where fewer may follow the rest have −∞. */
void compiled_best(const float *x, const float *before, int64_t rows, int64_t width, int64_t size, int64_t count, const Rules *rules,
                   Best *best) {
    FITTING(best)(x, before, rows, width, size, count, rules, best);
}

/* One more whenever something else is computed, or a structure changes: what was compiled before is not called then. */
int compiled_version(void) { return 2; }

/* How large the structures are: those of compiled.py must be alike. */
void compiled_sizes(int64_t *sizes) {
    sizes[0] = sizeof(Stack);
    sizes[1] = sizeof(Block);
    sizes[2] = sizeof(Known);
    sizes[3] = sizeof(Source);
    sizes[4] = sizeof(Rules);
    sizes[5] = sizeof(Best);
}
