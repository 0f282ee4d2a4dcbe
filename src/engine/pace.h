/* The prefill chunk of a step, chosen from measured times so that running answers never wait much
 * longer than two decode steps while a long prompt is read, and a cancelled prompt stops soon. Only
 * how prompts are cut into steps depends on time; results don't. Pure: the caller supplies the
 * times. */
#ifndef PF_ENGINE_PACE_H
#define PF_ENGINE_PACE_H

#include <stdint.h>

typedef struct {
    int most; /* prompt tokens of a step; > 0 */
    /* Moving averages; 0 = none seen. */
    double plain_ns, plain_rows; /* of a step without prompt tokens, and of its answers */
    double token_ns;             /* of what one prompt token adds */
} pace;

void pace_init(pace *p, int most);
/* A step took ns with so many rows of running answers and prompt tokens. */
void pace_record(pace *p, int64_t ns, int writing, int prompt);
/* Prompt tokens for the next step beside so many running answers; 1..most. */
int pace_budget(const pace *p, int writing);

#endif
