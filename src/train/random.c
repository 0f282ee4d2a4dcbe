#include "train/random.h"

#include <math.h>

uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

double random_uniform(uint64_t *state)
{
    return (double)(random_next(state) >> 11) * 0x1p-53;
}

double random_normal(uint64_t *state)
{
    double u = 1 - random_uniform(state), angle = 6.283185307179586 * random_uniform(state);
    return sqrt(-2 * log(u)) * cos(angle);
}

void random_permutation(uint64_t seed, size_t *order, size_t n)
{
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)(random_uniform(&seed) * (double)i), other = order[j];
        order[j] = order[i - 1];
        order[i - 1] = other;
    }
}
