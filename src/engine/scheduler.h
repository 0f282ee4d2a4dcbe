/* The scheduler: who gets memory, and who computes how many tokens in the next step. Two pure
 * functions of queues and budgets; the engine carries out what they decide.
 *
 * Memory. A request is admitted with a reservation of KV pages, and the reservations of all running
 * requests together never exceed the pages there are, so no admitted request ever finds the pool
 * empty. An answer with a stated limit reserves all it may need and is never interrupted. An answer
 * without one ("as many tokens as the context holds") reserves its prompt and a quantum, and asks
 * for another quantum when that is used up. If there is none left, the youngest answer without a
 * limit gives its pages back, possibly the asking one itself, and is computed again later.
 * Newcomers never take pages from running answers.
 *
 * Progress. Answers with a limit always finish. The oldest one without a limit can only be
 * interrupted when answers with a limit hold the rest; those finish. It is older than any waiting
 * request, none overtakes it, and each time it runs it gains a quantum: it finishes. Every request
 * fits the budget alone (checked when it is submitted).
 *
 * Order. Waiting requests start in the order of priority, then of their fair-queueing tags (see
 * scheduler_tag): a user's second request queues behind another user's first. Interrupted requests
 * keep their tags and so come first. A request that waits for pages or a place blocks those behind
 * it (else short requests would starve long ones). One that waits for an adapter blocks none while
 * the adapter is being fetched; where there is no room for the adapter, SCHED_MOST_OVERTAKING later
 * requests may start before it, then the queue stops until running requests have freed that room.
 *
 * Steps. Every answer being written gets its one row in every step. Prompt tokens share what the
 * step has left for them: equally between users (priority first), or in turns where equal parts
 * would be too small; within a user in order of age. So a short prompt starts while long ones are
 * being read. */
#ifndef PF_ENGINE_SCHEDULER_H
#define PF_ENGINE_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

enum { SCHED_MOST_OVERTAKING = 32 };

typedef enum {
    WAIT_NOTHING,
    WAIT_PLACE,   /* max_running answers are being written */
    WAIT_PAGES,   /* KV memory */
    WAIT_ADAPTER, /* being fetched from the store */
    WAIT_SLOT,    /* all adapter slots are in use by prompts */
    WAIT_EARLIER  /* an earlier request is first in line */
} wait_reason;

/* A request as the scheduler sees it. */
typedef struct {
    uint64_t user;
    int priority;
    uint64_t tag;        /* scheduler_tag; ties go to the lower index */
    bool running;        /* admitted: holds a reservation */
    bool limited;        /* its answer has a stated limit: reserved in full, never interrupted */
    int tokens;          /* in the sequence: the prompt and what was generated */
    int computed;        /* tokens whose K and V are there, < tokens */
    bool writing;        /* its prompt has been read and one generated token is to be computed */
    int limit;           /* tokens the sequence may reach */
    int reserved;        /* pages */
    wait_reason adapter; /* WAIT_NOTHING: ready or not needed; else WAIT_ADAPTER or WAIT_SLOT */
    int overtaken;       /* later requests that started while this one waited with WAIT_SLOT */
} sched_item;

typedef struct {
    int page_tokens;
    int total_pages;
    int max_running;
    int quantum; /* tokens that an answer without a limit reserves at a time */
} sched_limits;

typedef struct {
    enum { SCHED_KEEP, SCHED_ADMIT, SCHED_PREEMPT } action;
    int reserved;    /* pages; after the action */
    wait_reason why; /* of those that wait after the action */
    int overtaken;   /* the item's, after the action */
} sched_decision;

/* The waiting items in queue order: order[0..returned) are indexes of items. */
int scheduler_line(const sched_item *items, int n, int *order);

/* Decides memory: out[i] for items[0..n). Running items whose reservation does not hold their next
 * token get a larger one or are preempted; waiting items are admitted while pages and places last.
 */
void scheduler_admit(const sched_limits *limits, const sched_item *items, int n,
                     sched_decision *out);

/* Decides work: rows[i] = tokens that running items[i] computes in this step, 0 for the rest.
 * prompt_budget: most prompt (and recomputed) tokens of the step, > 0. least, > 0: users take turns
 * where equal parts would be smaller than this, since a step reads the weights of each adapter in
 * it once, for few tokens as for many. step: the step's number; the user who begins, and the
 * remainder of an unequal division, rotate with it. Returns the sum of rows. */
int scheduler_share(const sched_item *items, int n, int prompt_budget, int least, uint64_t step,
                    int *rows);

/* Start-time fair queueing: the tag of a new request of a user is max(virtual time, the finish of
 * the user's last request); its finish is tag + cost. Virtual time is the tag of the request that
 * started last. *finish is the user's, updated. */
uint64_t scheduler_tag(uint64_t virtual_time, uint64_t cost, uint64_t *finish);

/* Pages that n tokens take. */
int scheduler_pages(const sched_limits *limits, int n);

#endif
