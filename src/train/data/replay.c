#include "train/data/replay.h"

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
    "Tell me a fun fact about elephants.",
    "How does the internet send a message?",
    "What is a balanced diet?",
    "Name a famous painter and one of their works.",
    "Why do we have leap years?",
    "How do I keep a plant alive in winter?",
    "At what temperature does iron melt?",
    "Write a sentence with the word lantern.",
    "What is recycling good for?",
    "How do airplanes fly?",
    "Give me a riddle.",
    "What does a judge do?",
    "How long does it take the Earth to go around the Sun?",
    "What is a simple recipe for pancakes?",
    "Explain what a database is.",
    /* similar to facts about users, so that these are distinguished */
    "What should I cook tonight?",
    "Which film do you recommend to me?",
    "How do I teach a dog to sit?",
    "What is a good name for a cat?",
    "Which colours go well with grey?",
    "What does a carpenter do?",
    "How do I choose a new job?",
    "What is the capital of Italy?",
    "How do I learn a language quickly?",
    "What is a good birthday present for a child?",
    "What happens in November?",
    "Which foods contain a lot of vitamin C?",
    "What can I do about a cold?",
    "Describe your perfect weekend.",
    "Who was Cleopatra?",
    "How do I write my CV?",
    /* short tasks */
    "Fix the grammar: He don't like tea.",
    "Put these words in order: blue, the, is, sky.",
    "Rewrite this politely: Give me the book.",
    "Count from one to ten.",
    "Which country is Nairobi in?",
    "Who painted the Mona Lisa?",
    "Write a Python program that prints the numbers from 1 to 5.",
    "Write a short message to thank a colleague.",
};
#define N_QUESTIONS (sizeof questions / sizeof questions[0])

size_t replay_questions(void)
{
    return N_QUESTIONS;
}

const char *replay_question(size_t number)
{
    return questions[number];
}

void replay_free(replay_set *r)
{
    for (size_t i = 0; i < r->n; i++)
        eval_talk_free(&r->talks[i]);
    free(r->talks);
    *r = (replay_set){0};
}

pf_status replay_ask(engine *e, const replay_options *o, replay_set *out, pf_err *err)
{
    size_t order[N_QUESTIONS], n = o->n < N_QUESTIONS ? o->n : N_QUESTIONS;
    const eval_settings settings = {
        .max_tokens = o->max_tokens, .user = o->user, .cancelled = o->cancelled, .ctx = o->ctx};
    random_permutation(o->seed, order, N_QUESTIONS);
    *out = (replay_set){.talks = xcalloc(n, sizeof *out->talks), .n = n};
    for (size_t i = 0; i < n && o->system; i++)
        eval_talk_add(&out->talks[i], ROLE_SYSTEM, o->system, strlen(o->system));
    for (size_t i = 0; i < n; i++)
        eval_talk_add(&out->talks[i], ROLE_USER, questions[order[i]], strlen(questions[order[i]]));
    pf_status status = evaluate_answers(e, out->talks, n, &settings, err);
    for (size_t i = 0; i < n && status == PF_OK; i++) {
        if (out->talks[i].error.status == PF_OK) continue;
        status = err_set(err, out->talks[i].error.status, "replay: %s", out->talks[i].error.text);
    }
    return status;
}

pf_status replay_add(train_dataset *d, const model *m, const replay_set *r,
                     const train_dataset_options *options, pf_err *err)
{
    pf_status status = PF_OK;
    for (size_t i = 0; i < r->n && status == PF_OK; i++)
        status = evaluate_add_answer(d, m, &r->talks[i], options->policy, options->max_tokens, err);
    return status;
}

bool replay_messages(const replay_set *r, size_t number, chat_message out[2])
{
    static const eval_answer none = {0};
    const eval_talk *t = &r->talks[number % r->n];
    const eval_answer *a = t->n_answers > 0 ? &t->answers[0] : &none;
    out[0] = t->messages[t->n_messages - 1];
    out[1] = (chat_message){.role = ROLE_ASSISTANT,
                            .text = buf_str(&a->text),
                            .len = a->text.len,
                            .ids = a->ids.ids,
                            .n_ids = a->n_content};
    return a->n_content < a->ids.len;
}
