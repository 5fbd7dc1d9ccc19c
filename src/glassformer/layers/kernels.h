/* What layers/compiled.c computes, once for each kind of processor: there TARGET says which, NAME names it, and SUMS is how many
 * Lanes of sums a product has under way at a time. */

#define INLINE static inline TARGET __attribute__((always_inline))
#define FUNCTION static TARGET

INLINE Lanes NAME(load)(const float *from) { return *(const Lanes *)from; }
INLINE void NAME(store)(float *to, Lanes x) { *(Lanes *)to = x; }
INLINE Lanes NAME(chosen)(Counts where, Lanes a, Lanes b) { return (Lanes)((where & (Counts)a) | (~where & (Counts)b)); }

INLINE float NAME(sum)(Lanes x) {
    x += IN_ORDER(x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    x += IN_ORDER(x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
    return (x[0] + x[1]) + (x[2] + x[3]);
}

INLINE float NAME(dot)(const float *a, const float *b, int64_t n) {
    Lanes sums = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) sums += NAME(load)(a + i) * NAME(load)(b + i);
    float sum = NAME(sum)(sums);
    for (; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* e^x of x ≤ 88, to the last bit or two: 2ⁿ · e^r with |r| ≤ ln 2 / 2, and a polynomial for e^r (Cephes' expf). */
INLINE Lanes NAME(exp)(Lanes x) {
    const float round = 12582912.0f; /* 1.5 · 2²³: with that added there is no place left for a fraction */
    Lanes n = (x * 1.44269504f + round) - round;
    Lanes r = x - n * 0.693359375f + n * 2.12194440e-4f;
    Lanes y = 1.9875691500e-4f * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    Lanes power = (Lanes)((__builtin_convertvector(n, Counts) + 127) << 23);
    return NAME(chosen)(x < -87.0f, (Lanes){0}, y * power);
}

/* -- layers */

/* Of y (rows, outputs) = x W + b, or of y += that, some columns of some rows: both numbers are known to the compiler. The rows of
 * y stand `step` apart. */
INLINE void NAME(tile)(const Linear *l, const float *x, int rows, int64_t column, int vectors, float *y, int64_t step, int add) {
    const int64_t inputs = l->inputs, outputs = l->outputs;
    const float *w = l->weight + column;
    Lanes sums[6][8];
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) {
            sums[i][j] = (Lanes){0};
            if (l->bias) sums[i][j] = NAME(load)(l->bias + column + j * LANES);
        }
    for (int64_t k = 0; k < inputs; k++, w += outputs) {
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) {
            Lanes weights = NAME(load)(w + j * LANES);
#pragma GCC unroll 6
            for (int i = 0; i < rows; i++) sums[i][j] += x[i * inputs + k] * weights;
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++) {
            float *to = y + i * step + column + j * LANES;
            if (add) sums[i][j] += NAME(load)(to);
            NAME(store)(to, sums[i][j]);
        }
}

INLINE void NAME(some_rows)(const Linear *l, const float *x, int rows, float *y, int64_t step, int add) {
    const int most = SUMS / rows; /* Lanes of a row; as many as that and the columns allow */
    int64_t column = 0;
    for (; most >= 8 && column + 8 * LANES <= l->outputs; column += 8 * LANES) NAME(tile)(l, x, rows, column, 8, y, step, add);
    for (; most >= 4 && column + 4 * LANES <= l->outputs; column += 4 * LANES) NAME(tile)(l, x, rows, column, 4, y, step, add);
    for (; most >= 2 && column + 2 * LANES <= l->outputs; column += 2 * LANES) NAME(tile)(l, x, rows, column, 2, y, step, add);
    for (; column + LANES <= l->outputs; column += LANES) NAME(tile)(l, x, rows, column, 1, y, step, add);
    for (; column < l->outputs; column++)
        for (int i = 0; i < rows; i++) {
            float sum = l->bias ? l->bias[column] : 0;
            for (int64_t k = 0; k < l->inputs; k++) sum += x[i * l->inputs + k] * l->weight[k * l->outputs + column];
            y[i * step + column] = add ? y[i * step + column] + sum : sum;
        }
}

FUNCTION void NAME(multiply_apart)(const Linear *l, const float *x, int64_t rows, float *y, int64_t step, int add) {
    for (; rows >= 6; rows -= 6, x += 6 * l->inputs, y += 6 * step) NAME(some_rows)(l, x, 6, y, step, add);
    switch (rows) {
        case 5: NAME(some_rows)(l, x, 5, y, step, add); break;
        case 4: NAME(some_rows)(l, x, 4, y, step, add); break;
        case 3: NAME(some_rows)(l, x, 3, y, step, add); break;
        case 2: NAME(some_rows)(l, x, 2, y, step, add); break;
        case 1: NAME(some_rows)(l, x, 1, y, step, add); break;
    }
}

INLINE void NAME(multiply)(const Linear *l, const float *x, int64_t rows, float *y, int add) {
    NAME(multiply_apart)(l, x, rows, y, l->outputs, add);
}

/* The same by a W of which each PANEL columns stand for themselves, row after row: so it is read from one end to the other. */
FUNCTION void NAME(multiply_panels)(const Linear *l, const float *x, int64_t rows, float *y) {
    for (int64_t column = 0; column < l->outputs; column += PANEL) {
        const int64_t left = l->outputs - column;
        const Linear panel = {l->weight + column * l->inputs, l->bias ? l->bias + column : NULL, l->inputs, left < PANEL ? left : PANEL};
        NAME(multiply_apart)(&panel, x, rows, y + column, l->outputs, 0);
    }
}

/* y (rows, D) = γ · (x − μ) / √(σ² + ε) + β; of RMSNorm without μ and β. y may be x. */
FUNCTION void NAME(normalise)(const Norm *norm, const float *x, int64_t rows, int64_t width, float *y) {
    for (; rows > 0; rows--, x += width, y += width) {
        float mean = 0, square = 0;
        if (norm->centred) {
#pragma omp simd reduction(+ : mean)
            for (int64_t i = 0; i < width; i++) mean += x[i];
            mean /= width;
        }
#pragma omp simd reduction(+ : square)
        for (int64_t i = 0; i < width; i++) square += (x[i] - mean) * (x[i] - mean);
        const float scale = 1 / sqrtf(square / width + norm->epsilon);
        for (int64_t i = 0; i < width; i++) y[i] = norm->weight[i] * ((x[i] - mean) * scale);
        for (int64_t i = 0; norm->bias && i < width; i++) y[i] += norm->bias[i];
    }
}

/* z (d_v) = softmax(q Kᵀ + bias) V of one query of one head. The keys of T tokens stand some steps apart and, where they have
 * slots, so many more; the values beside them. */
FUNCTION void NAME(look)(const Stack *s, const float *q, const float *k, int64_t step, const int32_t *slots, int64_t slot_step,
                         int64_t length, const float *bias, float *scores, float *z) {
    const float *v = k + s->d_k;
    float most = -INFINITY;
    for (int64_t t = 0; t < length; t++) {
        scores[t] = NAME(dot)(q, k + t * step + (slots ? slots[t] * slot_step : 0), s->d_k) + (bias ? bias[t] : 0);
        most = scores[t] > most ? scores[t] : most;
    }
    if (most == -INFINITY) { /* it may look nowhere, unless there is a NaN */
        float sum = 0;
        for (int64_t t = 0; t < length; t++) sum += scores[t];
        for (int64_t i = 0; i < s->d_v; i++) z[i] = isnan(sum) ? sum : 0;
        return;
    }
    for (int64_t t = length; t % LANES; t++) scores[t] = -INFINITY;
    Lanes sums = {0};
    for (int64_t t = 0; t < length; t += LANES) {
        Lanes each = NAME(exp)(NAME(load)(scores + t) - most);
        NAME(store)(scores + t, each);
        sums += each;
    }
    const float sum = NAME(sum)(sums);
    int64_t i = 0;
    for (; i + LANES <= s->d_v; i += LANES) {
        Lanes mean = {0};
        for (int64_t t = 0; t < length; t++) mean += scores[t] * NAME(load)(v + t * step + (slots ? slots[t] * slot_step : 0) + i);
        NAME(store)(z + i, mean / sum);
    }
    for (; i < s->d_v; i++) {
        float mean = 0;
        for (int64_t t = 0; t < length; t++) mean += scores[t] * v[t * step + (slots ? slots[t] * slot_step : 0) + i];
        z[i] = mean / sum;
    }
}

/* Each pair (x_i, x_{i + d_k/2}) of a query or key, turned by the angle of its place. */
INLINE void NAME(turn)(const Stack *s, float *x, int64_t place) {
    const int64_t half = s->d_k / 2;
    const float *cos = s->cos + place * half, *sin = s->sin + place * half;
    for (int64_t i = 0; i < half; i++) {
        const float a = x[i], b = x[i + half];
        x[i] = a * cos[i] - b * sin[i];
        x[i + half] = b * cos[i] + a * sin[i];
    }
}

FUNCTION void NAME(activate)(int32_t activation, float *x, int64_t count) {
    for (int64_t i = 0; activation == RELU && i < count; i++) x[i] = x[i] < 0 ? 0 : x[i];
    for (int64_t i = 0; activation == GELU && i < count; i++) x[i] *= 0.5f * (1 + erff(x[i] * 0.70710678f));
    for (int64_t i = 0; activation == GELU_TANH && i < count; i++)
        x[i] *= 0.5f * (1 + tanhf(0.79788456f * (x[i] + 0.044715f * x[i] * x[i] * x[i])));
    for (int64_t i = 0; activation == SILU && i < count; i++) x[i] /= 1 + expf(-x[i]);
}

/* -- the stack */

FUNCTION int NAME(has_room)(const Stack *s, int64_t rows, int64_t looked_at, Room *room) {
    const int64_t joined = s->heads * s->d_k + s->kv_heads * (s->d_k + s->d_v), z = s->heads * s->d_v;
    room->all = malloc(sizeof(float) * (rows * (s->width + joined + z + 2 * s->inner) + looked_at + LANES));
    room->normed = room->all;
    room->joined = room->normed + rows * s->width;
    room->z = room->joined + rows * joined;
    room->inner = room->z + rows * z;
    room->gate = room->inner + rows * s->inner;
    room->scores = room->gate + rows * s->inner;
    return room->all != NULL;
}

/* Tokens and positions: the first at `place`, the next `step` further. */
FUNCTION int NAME(embed)(const Stack *s, const int64_t *ids, int64_t rows, int64_t place, int64_t step, float *x) {
    for (; rows > 0; rows--, ids++, place += step, x += s->width) {
        if (*ids < 0 || *ids >= s->vocabulary) return NO_SUCH_TOKEN;
        if ((s->positions || s->cos) && place >= s->places) return NO_SUCH_PLACE;
        for (int64_t d = 0; d < s->width; d++) x[d] = s->scale * s->tokens[*ids * s->width + d];
        for (int64_t d = 0; s->positions && d < s->width; d++) x[d] += s->positions[place * s->width + d];
    }
    return FINE;
}

/* What a sublayer reads of the residual stream x. */
INLINE const float *NAME(before)(const Stack *s, const Norm *norm, const float *x, int64_t rows, const Room *room) {
    if (s->post) return x;
    NAME(normalise)(norm, x, rows, s->width, room->normed);
    return room->normed;
}

/* What a sublayer has found is added to x. */
INLINE void NAME(after)(const Stack *s, const Norm *norm, const Linear *out, const float *found, float *x, int64_t rows) {
    NAME(multiply)(out, found, rows, x, 1);
    if (s->post) NAME(normalise)(norm, x, rows, s->width, x);
}

/* Every row looks at itself and what was before it, or at all rows if they are one source's. */
FUNCTION void NAME(look_at_own)(const Stack *s, const Known *known, int64_t l, const Room *room) {
    const int64_t group = s->heads / s->kv_heads, both = s->d_k + s->d_v, queries = s->heads * s->d_k;
    const int64_t joined = queries + s->kv_heads * both;
    for (int64_t i = 0; i < known->rows; i++) {
        const int64_t place = known->own ? known->length : i;
        float *q = room->joined + i * joined;
        for (int64_t h = 0; s->cos && h < s->heads; h++) NAME(turn)(s, q + h * s->d_k, place);
        for (int64_t g = 0; s->cos && g < s->kv_heads; g++) NAME(turn)(s, q + queries + g * both, place);
    }
    const int64_t head = known->room * both, slot = s->kv_heads * head;
    float *own = known->own ? known->own + l * known->slots * slot : NULL;
    for (int64_t i = 0; known->own && i < known->rows; i++) /* its own keys and values go to slot i */
        for (int64_t g = 0; g < s->kv_heads; g++)
            memcpy(own + i * slot + g * head + known->length * both, room->joined + i * joined + queries + g * both, both * sizeof(float));
    for (int64_t i = 0; i < known->rows; i++)
        for (int64_t h = 0; h < s->heads; h++) {
            const float *q = room->joined + i * joined + h * s->d_k, *k = room->joined + queries + h / group * both;
            float *z = room->z + (i * s->heads + h) * s->d_v;
            if (known->own) {
                k = own + h / group * head;
                const int32_t *slots = known->trails + i * known->room;
                NAME(look)(s, q, k, both, slots, slot, known->length + 1, NULL, room->scores, z);
            } else {
                NAME(look)(s, q, k, joined, NULL, 0, known->rows, NULL, room->scores, z);
            }
        }
}

/* Every row looks at its source. */
FUNCTION void NAME(look_at_source)(const Stack *s, const Known *known, int64_t l, const Room *room) {
    const Source *source = known->sources + l;
    for (int64_t i = 0; i < known->rows; i++)
        for (int64_t h = 0; h < s->heads; h++) {
            const int64_t n = known->looked_at[i], g = h / (s->heads / s->kv_heads), place = i * s->heads + h;
            const float *k = source->both + n * source->steps[0] + g * source->steps[1];
            const float *bias = known->bias ? known->bias + n * known->source_length : NULL;
            NAME(look)(s, room->joined + place * s->d_k, k, source->steps[2], NULL, 0, known->source_length, bias, room->scores,
                       room->z + place * s->d_v);
        }
}

FUNCTION int NAME(pass)(const Stack *s, const int64_t *ids, const Known *known, float *x) {
    const int64_t rows = known->rows, own = known->own ? known->length + 1 : rows;
    Room room;
    if (!NAME(has_room)(s, rows, known->sources && known->source_length > own ? known->source_length : own, &room)) return NO_MEMORY;
    int wrong = NAME(embed)(s, ids, rows, known->own ? known->length : 0, !known->own, x);
    for (int64_t l = 0; !wrong && l < s->depth; l++) {
        const Block *block = s->blocks + l;
        const Norm *norm = block->norms;
        NAME(multiply)(&block->joined, NAME(before)(s, norm, x, rows, &room), rows, room.joined, 0);
        NAME(look_at_own)(s, known, l, &room);
        NAME(after)(s, norm, &block->o, room.z, x, rows);
        norm++;
        if (known->sources) {
            NAME(multiply)(&block->q, NAME(before)(s, norm, x, rows, &room), rows, room.joined, 0);
            NAME(look_at_source)(s, known, l, &room);
            NAME(after)(s, norm, &block->cross_o, room.z, x, rows);
        }
        norm++;
        const float *read = NAME(before)(s, norm, x, rows, &room);
        NAME(multiply)(&block->w1, read, rows, room.inner, 0);
        NAME(activate)(s->activation, room.inner, rows * s->inner);
        if (block->w3.weight) NAME(multiply)(&block->w3, read, rows, room.gate, 0);
        for (int64_t i = 0; block->w3.weight && i < rows * s->inner; i++) room.inner[i] *= room.gate[i];
        NAME(after)(s, norm, &block->w2, room.inner, x, rows);
    }
    if (!wrong && s->last.weight) NAME(normalise)(&s->last, x, rows, s->width, x);
    free(room.all);
    return wrong;
}

/* log Σ eˣ of n numbers. */
FUNCTION float NAME(log_sum_exp)(const float *x, int64_t n) {
    const int64_t whole = n - n % LANES;
    Lanes largest = (Lanes){0} - INFINITY, sums = {0};
    for (int64_t i = 0; i < whole; i += LANES) {
        Lanes each = NAME(load)(x + i);
        largest = NAME(chosen)(each > largest, each, largest);
    }
    float most = -INFINITY;
    for (int j = 0; j < LANES; j++) most = largest[j] > most ? largest[j] : most;
    for (int64_t i = whole; i < n; i++) most = x[i] > most ? x[i] : most;
    for (int64_t i = 0; i < whole; i += LANES) sums += NAME(exp)(NAME(load)(x + i) - most);
    float sum = NAME(sum)(sums);
    for (int64_t i = whole; i < n; i++) sum += expf(x[i] - most);
    return most + logf(sum);
}

INLINE int NAME(may_follow)(const Rules *rules, int64_t token) {
    for (int64_t i = 0; i < rules->count; i++)
        if (rules->never[i] == token) return 0;
    return 1;
}

FUNCTION void NAME(best_of_one)(const float *x, const float *before, int64_t width, int64_t size, int64_t count, const Rules *rules,
                                int ends, Best *best) {
    int64_t known = 0;
    for (int64_t k = 0; k < width; k++, x += size) {
        const float all = NAME(log_sum_exp)(x, size), more = before[k] - all;
        if (!isfinite(all)) { /* nor is anything else that is found here: whoever asks is to hear of it */
            for (int64_t i = 0; i < count; i++) best[i] = (Best){NAN, NAN, 0};
            return;
        }
        for (int64_t i = ends ? rules->eos : 0, end; i < (ends ? rules->eos + 1 : size); i = end) {
            end = ends ? i + 1 : i + 4 * LANES < size ? i + 4 * LANES : size;
            if (known == count && end - i == 4 * LANES) { /* most of them are none of the best */
                Counts better = {0};
                for (int j = 0; j < 4; j++) better |= NAME(load)(x + i + j * LANES) + more > best[count - 1].total;
                int32_t any = 0;
                for (int j = 0; j < LANES; j++) any |= better[j];
                if (!any) continue;
            }
            for (; i < end; i++) {
                const float total = x[i] + more;
                if ((known == count && !(total > best[count - 1].total)) || !(ends || NAME(may_follow)(rules, i))) continue;
                int64_t at = known < count ? known++ : count - 1;
                for (; at > 0 && total > best[at - 1].total; at--) best[at] = best[at - 1];
                best[at] = (Best){total, x[i] - all, k * size + i};
            }
        }
    }
    for (; known < count; known++) best[known] = (Best){-INFINITY, -INFINITY, 0};
}

FUNCTION void NAME(best)(const float *x, const float *before, int64_t rows, int64_t width, int64_t size, int64_t count,
                         const Rules *rules, Best *best) {
    for (int64_t b = 0; b < rows; b++)
        NAME(best_of_one)(x + b * width * size, before + b * width, width, size, count, rules, rules->ends && rules->ends[b],
                          best + b * count);
}

#undef INLINE
#undef FUNCTION
