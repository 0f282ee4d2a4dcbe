/* Rotary frequencies: theta^(-2i/head_dim) and the scalings that change them. */
#ifndef PF_MODELS_ROPE_H
#define PF_MODELS_ROPE_H

#include <stdint.h>

/* Owned array of head_dim / 2 frequencies, unscaled. */
double *rope_frequencies(double theta, int32_t head_dim);
/* Linear scaling (position interpolation): every frequency divided by factor. */
void rope_scale_linear(double *inv_freq, int32_t n, double factor);
/* Llama 3.1: with wavelength w = 2 pi / f, frequencies with w < context / high stay, those with
 * w > context / low are divided by factor, those between are blended linearly in context / w. */
typedef struct {
    double factor, low, high;
    double context; /* original_max_position_embeddings */
} rope_llama3;
void rope_scale_llama3(double *inv_freq, int32_t n, const rope_llama3 *scaling);

#endif
