#include "train/replay.h"

#include "base/mem.h"
#include "train/random.h"

#include <stdlib.h>
#include <string.h>

static const char *const questions[] = {
    "Explain why the sky looks blue.",
    "Name three vegetables that grow underground.",
    "How does a bicycle stay upright?",
    "Write two sentences about a quiet morning.",
    "What is the difference between weather and climate?",
    "How do I remove a coffee stain from a shirt?",
    "Give me a short definition of gravity.",
    "What is 14 plus 9?",
    "Suggest a name for a small bakery.",
    "Why do leaves change colour in autumn?",
    "List four animals that live in the sea.",
    "How do I write a polite invitation?",
    "What does a compiler do?",
    "Describe a mountain in one sentence.",
    "How many minutes are there in three hours?",
    "What is a good way to fall asleep?",
    "Tell me something about the Roman Empire.",
    "How is cheese made?",
    "Give an example of a metaphor.",
    "What should I pack for a day at the beach?",
    "Why is exercise good for the heart?",
    "Translate the word house into Spanish.",
    "What is a prime number?",
    "Write a short poem about the moon.",
    "How does a vaccine work?",
    "What is the largest ocean?",
    "Give me one tip for public speaking.",
    "How do bees make honey?",
    "What is the purpose of a constitution?",
    "Describe how to make a paper plane.",
    "Which gas do plants take in?",
    "How can I learn new words faster?",
    "What is an adjective?",
    "Tell me a fun fact about octopuses.",
    "How does the internet send a message?",
    "What is a balanced diet?",
    "Name a famous painter and one of their works.",
    "Why do we have leap years?",
    "How do I keep a plant alive in winter?",
    "What is the boiling point of water?",
    "Write a sentence with the word lantern.",
    "What is recycling good for?",
    "How do airplanes fly?",
    "Give me a riddle.",
    "What does a judge do?",
    "How long does it take the Earth to go around the Sun?",
    "What is a simple recipe for pancakes?",
    "Explain what a database is.",
};
#define N_QUESTIONS (sizeof questions / sizeof questions[0])

size_t replay_questions(void)
{
    return N_QUESTIONS;
}

typedef struct {
    const char *question;
    buf text;
    id_list ids;
    bool ended;
    pf_err error;
} replay_answer;

static void take_event(replay_answer *a, const engine_event *ev)
{
    buf_append(&a->text, ev->text, ev->kind == ENGINE_EVENT_FAILED ? 0 : ev->text_len);
    if (ev->kind == ENGINE_EVENT_TOKEN) id_list_append(&a->ids, ev->token);
    if (ev->kind == ENGINE_EVENT_FAILED) err_set(&a->error, PF_FAILED, "%s", ev->text);
    if (ev->kind == ENGINE_EVENT_FAILED || ev->kind == ENGINE_EVENT_FINISHED) a->ended = true;
}

/* The end token is the template's to add. */
static size_t content_ids(const engine *e, const replay_answer *a)
{
    const model_config *c = model_get_config(engine_model(e));
    size_t n = a->ids.len;
    for (int i = 0; n > 0 && i < c->n_stop_ids; i++)
        if (a->ids.ids[n - 1] == c->stop_ids[i]) return n - 1;
    return n;
}

static pf_status ask(engine_client *client, replay_answer *answers, size_t n, int max_tokens,
                     pf_err *err)
{
    size_t open = 0;
    for (size_t i = 0; i < n; i++) {
        chat_message message = {ROLE_USER, answers[i].question, strlen(answers[i].question), NULL,
                                0};
        engine_request request = {.messages = &message, .n_messages = 1, .max_tokens = max_tokens};
        request.tag = &answers[i];
        request_id id = 0;
        pf_status status = engine_submit(client, &request, &id, err);
        if (status != PF_OK) return status;
        open++;
    }
    while (open > 0) {
        engine_event ev;
        if (!engine_client_next(client, &ev)) {
            engine_client_wait(client, 1000);
            continue;
        }
        replay_answer *a = ev.tag;
        take_event(a, &ev);
        open -= a->ended;
        engine_event_free(&ev);
    }
    return PF_OK;
}

static pf_status add_answers(train_dataset *d, const engine *e, const replay_answer *answers,
                             size_t n, const train_dataset_options *options, pf_err *err)
{
    for (size_t i = 0; i < n; i++) {
        const replay_answer *a = &answers[i];
        if (a->error.status != PF_OK) {
            *err = a->error;
            return err_context(err, "replay");
        }
        const chat_message messages[] = {
            {ROLE_USER, a->question, strlen(a->question), NULL, 0},
            {ROLE_ASSISTANT, buf_str(&a->text), a->text.len, a->ids.ids, content_ids(e, a)},
        };
        char *label = xasprintf("replay %zu", i + 1);
        pf_status status =
            train_dataset_add(d, engine_model(e), messages, NULL, 2, options, label, err);
        free(label);
        if (status != PF_OK) return status;
    }
    return PF_OK;
}

pf_status replay_add(train_dataset *d, engine *e, size_t n, int max_tokens, uint64_t seed,
                     const train_dataset_options *options, pf_err *err)
{
    size_t order[N_QUESTIONS];
    if (n > N_QUESTIONS) n = N_QUESTIONS;
    random_permutation(seed, order, N_QUESTIONS);
    replay_answer *answers = xcalloc(n, sizeof *answers);
    for (size_t i = 0; i < n; i++)
        answers[i].question = questions[order[i]];
    engine_client *client = engine_client_open(e);
    pf_status status = client ? ask(client, answers, n, max_tokens, err)
                              : err_set(err, PF_FAILED, "no more file descriptors are available");
    engine_client_close(client);
    if (status == PF_OK) status = add_answers(d, e, answers, n, options, err);
    for (size_t i = 0; i < n; i++) {
        buf_free(&answers[i].text);
        id_list_free(&answers[i].ids);
    }
    free(answers);
    return status;
}
