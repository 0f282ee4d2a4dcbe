#include "models/rope.h"

#include "base/mem.h"

#include <math.h>

double *rope_frequencies(double theta, int32_t head_dim)
{
    int32_t half = head_dim / 2;
    double *inv_freq = xcalloc((size_t)half, sizeof *inv_freq);
    for (int32_t i = 0; i < half; i++)
        inv_freq[i] = pow(theta, -2.0 * i / head_dim);
    return inv_freq;
}

void rope_scale_linear(double *inv_freq, int32_t n, double factor)
{
    for (int32_t i = 0; i < n; i++)
        inv_freq[i] /= factor;
}

void rope_scale_llama3(double *inv_freq, int32_t n, const rope_llama3 *s)
{
    for (int32_t i = 0; i < n; i++) {
        double turns = s->context * inv_freq[i] / (2 * M_PI); /* over the original context */
        if (turns > s->high) continue;
        double slow = inv_freq[i] / s->factor;
        double blend = turns < s->low ? 0 : (turns - s->low) / (s->high - s->low);
        inv_freq[i] = (1 - blend) * slow + blend * inv_freq[i];
    }
}
