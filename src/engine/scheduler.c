#include "engine/scheduler.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

int scheduler_pages(const sched_limits *limits, int n)
{
    return (n + limits->page_tokens - 1) / limits->page_tokens;
}

uint64_t scheduler_tag(uint64_t virtual_time, uint64_t cost, uint64_t *finish)
{
    uint64_t tag = *finish > virtual_time ? *finish : virtual_time;
    *finish = tag + cost;
    return tag;
}

/* --- order ------------------------------------------------------------------------------------ */

static int compare_items(const void *a, const void *b, void *context)
{
    const sched_item *items = context;
    int x = *(const int *)a, y = *(const int *)b;
    if (items[x].priority != items[y].priority)
        return items[x].priority > items[y].priority ? -1 : 1;
    if (items[x].tag != items[y].tag) return items[x].tag < items[y].tag ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Indexes of the items with this running state, first in line first; returns their number. */
static int sort_items(const sched_item *items, int n, bool running, int *order)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        if (items[i].running == running) order[count++] = i;
    if (count > 1) qsort_r(order, (size_t)count, sizeof *order, compare_items, (void *)items);
    return count;
}

static int *sorted(const sched_item *items, int n, bool running, int *count)
{
    int *order = xmalloc((size_t)n * sizeof *order);
    *count = sort_items(items, n, running, order);
    return order;
}

int scheduler_line(const sched_item *items, int n, int *order)
{
    return sort_items(items, n, false, order);
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Pages to reserve for an item that is admitted or extended with its present tokens. */
static int wanted_pages(const sched_limits *limits, const sched_item *item)
{
    int64_t tokens = item->limited ? item->limit : (int64_t)item->tokens + limits->quantum;
    if (tokens > item->limit) tokens = item->limit;
    return scheduler_pages(limits, (int)tokens);
}

/* Gives back the pages of the youngest running item without a limit. False: there is none. */
static int preempt_youngest(const sched_item *items, sched_decision *out, const int *order,
                            int count)
{
    for (int i = count - 1; i >= 0; i--) {
        sched_decision *d = &out[order[i]];
        if (items[order[i]].limited || d->action == SCHED_PREEMPT) continue;
        int pages = d->reserved;
        *d = (sched_decision){.action = SCHED_PREEMPT, .why = WAIT_PAGES};
        return pages;
    }
    die("no answer can give pages back although the reservations exceed the pages");
}

/* Extends the reservations that are used up, oldest first. Returns the pages reserved in all. */
static int extend_running(const sched_limits *limits, const sched_item *items, sched_decision *out,
                          const int *order, int count)
{
    int used = 0;
    for (int i = 0; i < count; i++)
        used += items[order[i]].reserved;
    for (int i = 0; i < count; i++) {
        const sched_item *item = &items[order[i]];
        sched_decision *d = &out[order[i]];
        int least = scheduler_pages(limits, item->tokens);
        if (d->action == SCHED_PREEMPT || least <= d->reserved) continue;
        while (d->action != SCHED_PREEMPT && used + least - d->reserved > limits->total_pages)
            used -= preempt_youngest(items, out, order, count);
        if (d->action == SCHED_PREEMPT) continue;
        int pages = wanted_pages(limits, item), spare = limits->total_pages - used + d->reserved;
        if (pages > spare) pages = spare;
        used += pages - d->reserved;
        d->reserved = pages;
    }
    return used;
}

/* Pages kept free for running answers without a limit, one quantum each, so that a newcomer does
 * not enter just to see somebody interrupted a moment later. */
static int headroom(const sched_limits *limits, const sched_item *items, const sched_decision *out,
                    int n)
{
    int quantum = scheduler_pages(limits, limits->quantum), pages = 0;
    for (int i = 0; i < n; i++) {
        const sched_item *item = &items[i];
        if (!item->running || item->limited || out[i].action == SCHED_PREEMPT) continue;
        int rest = scheduler_pages(limits, item->limit) - out[i].reserved;
        pages += rest < quantum ? rest : quantum;
    }
    return pages;
}

/* Counts an admission for those who stand before it in the line and wait for an adapter's room. */
static void overtake(const sched_item *items, sched_decision *out, const int *order, int place)
{
    for (int i = 0; i < place; i++)
        if (items[order[i]].adapter == WAIT_SLOT) out[order[i]].overtaken++;
}

static void admit_waiting(const sched_limits *limits, const sched_item *items, int n,
                          sched_decision *out, int used, int running)
{
    int count, spare = limits->total_pages - headroom(limits, items, out, n);
    int *order = sorted(items, n, false, &count);
    wait_reason blocked = WAIT_NOTHING;
    for (int i = 0; i < count; i++) {
        const sched_item *item = &items[order[i]];
        sched_decision *d = &out[order[i]];
        int pages = wanted_pages(limits, item);
        if (item->adapter != WAIT_NOTHING) {
            d->why = item->adapter;
            if (d->why == WAIT_SLOT && d->overtaken >= SCHED_MOST_OVERTAKING &&
                blocked == WAIT_NOTHING)
                blocked = WAIT_EARLIER;
        } else if (blocked != WAIT_NOTHING)
            d->why = blocked;
        else if (running >= limits->max_running)
            d->why = blocked = WAIT_PLACE;
        else if (used + pages > (running > 0 ? spare : limits->total_pages)) {
            d->why = WAIT_PAGES;
            blocked = WAIT_EARLIER;
        } else {
            *d = (sched_decision){.action = SCHED_ADMIT, .reserved = pages};
            overtake(items, out, order, i);
            used += pages;
            running++;
        }
    }
    free(order);
}

void scheduler_admit(const sched_limits *limits, const sched_item *items, int n,
                     sched_decision *out)
{
    for (int i = 0; i < n; i++)
        out[i] = (sched_decision){.action = SCHED_KEEP,
                                  .reserved = items[i].running ? items[i].reserved : 0,
                                  .overtaken = items[i].overtaken};
    int count, running = 0;
    int *order = sorted(items, n, true, &count);
    int used = extend_running(limits, items, out, order, count);
    PF_ASSERT(used <= limits->total_pages);
    bool preempted = false;
    for (int i = 0; i < count; i++) {
        if (out[order[i]].action == SCHED_PREEMPT)
            preempted = true;
        else
            running++;
    }
    free(order);
    if (!preempted) {
        admit_waiting(limits, items, n, out, used, running);
        return;
    }
    for (int i = 0; i < n; i++) /* whoever was interrupted in this step queues first */
        if (!items[i].running)
            out[i].why = items[i].adapter != WAIT_NOTHING ? items[i].adapter : WAIT_EARLIER;
}

/* --- work ------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t user;
    int priority;
    int want, share; /* prompt tokens of this user and priority */
} claim;

/* Max-min fair among the count claims from start on, in a circle of n: users that want less than an
 * equal part get what they want, the others share the rest equally; what can't be divided goes to
 * the first ones, in another order each round. */
static int divide_equally(claim *claims, int n, int start, int count, int budget, int round)
{
    int left = budget;
    for (bool more = true; more && left > 0;) {
        int hungry = 0;
        for (int i = 0; i < count; i++) {
            const claim *c = &claims[(start + i) % n];
            hungry += c->share < c->want;
        }
        if (hungry == 0) break;
        int part = left / hungry > 0 ? left / hungry : 1;
        more = false;
        for (int i = 0; i < count && left > 0; i++) {
            claim *c = &claims[(start + (i + round) % count) % n];
            int need = c->want - c->share;
            if (need <= 0) continue;
            int get = need < part ? need : part;
            if (get > left) get = left;
            c->share += get;
            left -= get;
            more = true;
        }
    }
    return budget - left;
}

/* As many claims as can have `least` tokens take this step, the next ones the next step; what they
 * leave goes to those whose turn is next. */
static int divide(claim *claims, int n, int budget, int least, uint64_t step)
{
    int left = budget, turns = budget / least;
    if (turns < 1) turns = 1;
    if (turns > n) turns = n;
    uint64_t begun = step * (uint64_t)turns; /* turns so far */
    int start = (int)(begun % (uint64_t)n), round = (int)(begun / (uint64_t)n % (uint64_t)n);
    for (int first = 0; first < n && left > 0; first += turns) {
        int count = turns < n - first ? turns : n - first;
        left -= divide_equally(claims, n, start + first, count, left, round);
    }
    return budget - left;
}

static claim *claim_of(claim *claims, int *n, const sched_item *item)
{
    for (int i = 0; i < *n; i++)
        if (claims[i].user == item->user && claims[i].priority == item->priority) return &claims[i];
    claims[*n] = (claim){item->user, item->priority, 0, 0};
    return &claims[(*n)++];
}

int scheduler_share(const sched_item *items, int n, int prompt_budget, int least, uint64_t step,
                    int *rows)
{
    if (n == 0) return 0;
    int total = 0, count, n_claims = 0;
    int *order = sorted(items, n, true, &count);
    claim *claims = xcalloc((size_t)count + 1, sizeof *claims);
    memset(rows, 0, (size_t)n * sizeof *rows);
    for (int i = 0; i < count; i++) {
        const sched_item *item = &items[order[i]];
        if (item->writing)
            total += rows[order[i]] = 1;
        else
            claim_of(claims, &n_claims, item)->want += item->tokens - item->computed;
    }
    /* Claims are in the order of the line: equal priorities stand together. */
    int left = prompt_budget;
    for (int first = 0, last; first < n_claims; first = last) {
        for (last = first + 1; last < n_claims; last++)
            if (claims[last].priority != claims[first].priority) break;
        left -= divide(claims + first, last - first, left, least, step);
    }
    for (int i = 0; i < count; i++) {
        const sched_item *item = &items[order[i]];
        if (item->writing) continue;
        claim *c = claim_of(claims, &n_claims, item);
        int want = item->tokens - item->computed;
        rows[order[i]] = want < c->share ? want : c->share;
        c->share -= rows[order[i]];
        total += rows[order[i]];
    }
    free(claims);
    free(order);
    return total;
}
