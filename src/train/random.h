/* Seeded random numbers of training: the same seed gives the same run everywhere. */
#ifndef PF_TRAIN_RANDOM_H
#define PF_TRAIN_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* SplitMix64 (Steele, Lea, Flood): one word of state, any value is a seed. */
uint64_t random_next(uint64_t *state);
double random_uniform(uint64_t *state); /* [0, 1) */
double random_normal(uint64_t *state);  /* mean 0, variance 1 */

/* order[n] = a permutation of 0..n-1 that depends on seed alone. */
void random_permutation(uint64_t seed, size_t *order, size_t n);

#endif
