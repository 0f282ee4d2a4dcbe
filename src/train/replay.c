#include "train/replay.h"

#include "base/mem.h"
#include "train/evaluate.h"
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

pf_status replay_add(train_dataset *d, engine *e, size_t n, int max_tokens, uint64_t seed,
                     const train_dataset_options *options, pf_err *err)
{
    size_t order[N_QUESTIONS];
    const eval_settings settings = {.max_tokens = max_tokens};
    if (n > N_QUESTIONS) n = N_QUESTIONS;
    random_permutation(seed, order, N_QUESTIONS);
    eval_talk *talks = xcalloc(n, sizeof *talks);
    for (size_t i = 0; i < n; i++)
        eval_talk_add(&talks[i], ROLE_USER, questions[order[i]], strlen(questions[order[i]]));
    pf_status status = evaluate_answers(e, talks, n, &settings, err);
    for (size_t i = 0; i < n; i++) {
        if (status == PF_OK && talks[i].error.status != PF_OK) {
            *err = talks[i].error;
            status = err_context(err, "replay");
        }
        if (status == PF_OK)
            status = evaluate_add_answer(d, engine_model(e), &talks[i], options->policy,
                                         options->max_tokens, err);
        eval_talk_free(&talks[i]);
    }
    free(talks);
    return status;
}
