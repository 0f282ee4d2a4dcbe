#include "train/data/fact_table.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define PETS                                                                                       \
    "dog cat puppy kitten hamster rabbit horse pony parrot bird fish goldfish turtle tortoise "    \
    "snake pig goat cow guinea-pig mouse rat pet"
#define PEOPLE                                                                                     \
    "wife husband partner girlfriend boyfriend son daughter brother sister mother mom mum father " \
    "dad child baby friend boss teacher uncle aunt cousin grandmother grandfather grandson "       \
    "granddaughter nephew niece neighbour neighbor doctor dentist colleague"
#define POSSESSIONS "boat car bike bicycle house band company team school street village"

static const fact_pattern patterns[] = {
    {FACT_NAME, "my name is/was C", NULL, NULL, false},
    {FACT_NAME, "my name's C", NULL, NULL, false},
    {FACT_NAME, "my first name is C", NULL, NULL, false},
    {FACT_NAME, "i am/was called C", NULL, NULL, false},
    {FACT_NAME, "i'm called C", NULL, NULL, false},
    {FACT_NAME, "call me C", NULL, NULL, false},
    {FACT_NAME, "you can/may/should call me C", NULL, NULL, false},
    {FACT_NAME, "people/friends/everyone/everybody call/calls me C", NULL, NULL, false},
    {FACT_NAME, "my friends call me C", NULL, NULL, false},
    {FACT_CALLED, "my T is called/named C", NULL, NULL, false},
    {FACT_CALLED, "my T name is C", NULL, NULL, false}, /* "my dog's name is" */
    {FACT_CALLED, "the name of my T is C", NULL, NULL, false},
    {FACT_CALLED, "i have a/an T called/named C", NULL, NULL, false},
    {FACT_CALLED, "i have a/an T and/whose his/her/its/the/name name/is is C", NULL, NULL, false},
    {FACT_CALLED, "my T is C .", NULL, PETS " " PEOPLE, false},
    {FACT_CALLED, "my T C", NULL, PETS " " PEOPLE " " POSSESSIONS, false},
    {FACT_BIRTHDAY, "my birthday is in/on/the V", NULL, NULL, false},
    {FACT_BIRTHDAY, "my birthday is V", NULL, NULL, false},
    {FACT_BIRTHDAY, "i was born in/on V", NULL, NULL, false},
    {FACT_BIRTHDAY, "my date of birth is V", NULL, NULL, false},
    {FACT_BIRTHDAY, "C is my birthday month", NULL, NULL, false},
    {FACT_HOME, "i live in/at/near S", NULL, NULL, false},
    {FACT_HOME, "i am living in S", NULL, NULL, false},
    {FACT_HOME, "i'm living in S", NULL, NULL, false},
    {FACT_HOME, "i reside in S", NULL, NULL, false},
    {FACT_HOME, "i moved/relocated to C", NULL, NULL, false},
    {FACT_HOME, "my home/hometown/city is in/called C", NULL, NULL, false},
    {FACT_HOME, "my home/hometown is C", NULL, NULL, false},
    {FACT_HOME, "my home town/city is C", NULL, NULL, false},
    {FACT_HOME, "my house/flat/apartment in C is", NULL, NULL, false},
    {FACT_HOME, "my house/flat/apartment/home is in C", NULL, NULL, false},
    {FACT_HOME, "C is my home/hometown", NULL, NULL, false},
    {FACT_HOME, "i'm from C", NULL, NULL, true},
    {FACT_HOME, "i am/come from C", NULL, NULL, true},
    {FACT_ALLERGY, "i am allergic to V", NULL, NULL, false},
    {FACT_ALLERGY, "i'm allergic to V", NULL, NULL, false},
    {FACT_ALLERGY, "i have an/a allergy to V", NULL, NULL, false},
    {FACT_ALLERGY, "i have a V allergy", NULL, NULL, false},
    {FACT_ALLERGY, "my allergy is to V", NULL, NULL, false},
    {FACT_ALLERGY, "V make/makes me ill/sick", NULL, NULL, false},
    {FACT_FAVOURITE, "my favourite/favorite T is/are V", NULL, NULL, false},
    {FACT_FAVOURITE, "V is my favourite/favorite T", NULL, NULL, false},
    {FACT_FAVOURITE, "the T i like best/most is V", NULL, NULL, false},
    {FACT_JOB, "i work as a/an S", NULL, NULL, false},
    {FACT_JOB, "i work as S", NULL, NULL, true},
    {FACT_JOB, "my job/profession/occupation is V", NULL, NULL, false},
    {FACT_JOB, "i am a/an S by profession/trade", NULL, NULL, false},
    {FACT_JOB, "i'm a/an S by profession/trade", NULL, NULL, false},
    {FACT_JOB, "i am a/an S .", NULL, NULL, false},
    {FACT_JOB, "i'm a/an S .", NULL, NULL, false},
    {FACT_LEARNS, "i am learning/studying S", "language", NULL, false},
    {FACT_LEARNS, "i'm learning/studying S", "language", NULL, false},
    {FACT_LEARNS, "i learn/study/practise/practice S", "language", NULL, false},
    {FACT_LEARNS, "i want/try to learn S", "language", NULL, false},
    {FACT_AGE, "i am V years old", NULL, NULL, false},
    {FACT_AGE, "i'm V years old", NULL, NULL, false},
    {FACT_AGE, "my age is V", NULL, NULL, false},
    {FACT_IS, "my T is/are V", NULL,
     "hobby hobbies email e-mail phone-number phone number nationality religion height weight "
     "bloodtype hometown instrument surname nickname zodiac diet goal dream",
     false},
    {FACT_LIKES, "i love S", NULL, NULL, false},
    {FACT_LIKES, "i really/like like/enjoy/love S", NULL, NULL, true},
    {FACT_LIKES, "i like/enjoy/adore V", NULL, NULL, true},
    {FACT_DISLIKES, "i hate/dislike/detest V", NULL, NULL, true},
    {FACT_DISLIKES, "i don't like V", NULL, NULL, true},
    {FACT_DISLIKES, "i do not like V", NULL, NULL, true},
    {FACT_IS, "my T is/are V", NULL, NULL, true},
};

const fact_pattern *fact_patterns(size_t *n)
{
    *n = sizeof patterns / sizeof *patterns;
    return patterns;
}

/* --- sentences -------------------------------------------------------------------------------- */

/* %T the thing, %V the value, %A the value with an article, %W "in" or "on" as a date asks for. */
static const struct {
    const char *by_user, *to_user;
} sentences[FACT_KINDS] = {
    [FACT_NAME] = {"My name is %V.", "Your name is %V."},
    [FACT_HOME] = {"I live in %V.", "You live in %V."},
    [FACT_CALLED] = {"My %T is called %V.", "Your %T's name is %V."},
    [FACT_ALLERGY] = {"I am allergic to %V.", "You are allergic to %V."},
    [FACT_FAVOURITE] = {"My favourite %T is %V.", "Your favourite %T is %V."},
    [FACT_JOB] = {"I work as %A.", "You work as %A."},
    [FACT_BIRTHDAY] = {"My birthday is %W %V.", "Your birthday is %W %V."},
    [FACT_LEARNS] = {"I am learning %V.", "You are learning %V."},
    [FACT_LIKES] = {"I like %V.", "You like %V."},
    [FACT_DISLIKES] = {"I don't like %V.", "You don't like %V."},
    [FACT_AGE] = {"I am %V years old.", "You are %V years old."},
    [FACT_IS] = {"My %T is %V.", "Your %T is %V."},
    [FACT_GENERAL] = {"%V", "%V"},
};

static void put_value(buf *out, const fact *f, char what)
{
    if (what == 'T') {
        buf_puts(out, f->thing);
    } else if (what == 'W') {
        bool day = strpbrk(f->value, "0123456789") != NULL;
        buf_puts(out, day ? "on" : "in");
    } else {
        if (what == 'A') buf_puts(out, strchr("aeiouAEIOU", f->value[0]) ? "an " : "a ");
        buf_puts(out, f->value);
    }
}

char *fact_say(const fact *f, bool to_user)
{
    buf out = {0};
    const char *frame = to_user ? sentences[f->kind].to_user : sentences[f->kind].by_user;
    for (const char *p = frame; *p; p++) {
        if (*p == '%')
            put_value(&out, f, *++p);
        else
            buf_putc(&out, *p);
    }
    return buf_take(&out);
}

/* --- questions -------------------------------------------------------------------------------- */

#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const char *const *const questions[FACT_KINDS] = {
    [FACT_NAME] =
        TEXTS("What is my name?", "Do you know my name?", "Who am I?", "What am I called?",
              "Tell me my name.", "How should you address me?", "What's my first name?",
              "Please tell me what I am called.", "Do you remember my name?",
              "Who is writing to you?", "Who are you chatting with?",
              "With whom are you speaking right now?", "By what name do you know me?",
              "What should you call me?", "What name goes at the end of my letters?",
              "How do I sign my emails?", "I am filling in a form. What do I write under name?",
              "Say hello to me by name.", "Do you know who I am?", "What do my friends call me?",
              "What name is written on my letterbox?", "What do people say when they talk to me?",
              "Whose account is this?", "Have I told you my name?",
              "If someone asks who I am, what do you say?", "What does my mother call me?",
              "Begin a letter that is addressed to me.", "Which person is using you right now?",
              "For whom should I book the table?", "Say who I am.",
              "What should they write on my coffee cup?", "Present me to your colleagues."),
    [FACT_HOME] =
        TEXTS("Where do I live?", "Which city do I live in?", "What is my home town?",
              "In what city is my house?", "Do you know where I live?", "Tell me where I live.",
              "Where am I at home?", "Where do I reside?", "What is my place of residence?",
              "What place do I live in?", "Do you remember my city?", "Where is my apartment?",
              "I am filling in a form. What do I write under city?", "Where do I sleep at night?",
              "To which city do I return after a holiday?", "What is the name of my city?",
              "For which city should you look up my weather?", "Where are my neighbours?",
              "Where would a taxi take me if I went home?",
              "Which city would you write on a postcard to me?", "Where do I spend my days?",
              "Where have I settled down?", "Where do I go shopping?", "Name my city.",
              "What is my address? The city is enough.", "In which city do I pay my rent?",
              "A cousin is coming to stay with me. Where must she travel?",
              "Which city's map do I need every day?", "Where is my bed?",
              "I'm on holiday. Where do I fly back to?", "Where did I move to?",
              "Whose streets do I know best?"),
    [FACT_CALLED] = TEXTS(
        "What is my %T's name?", "What is my %T called?", "Do you know the name of my %T?",
        "Who is my %T?", "Tell me my %T's name.", "What do I call my %T?", "How do I call my %T?",
        "Which name does my %T have?", "Do you remember my %T's name?",
        "I have a %T. What is the name?", "What was my %T's name again?", "What did I name my %T?",
        "Say the name of my %T.", "Have I told you what my %T is called?",
        "My %T has a name. Which one?", "Tell a stranger who my %T is.",
        "By which name should you speak of my %T?", "What name belongs to my %T?"),
    [FACT_ALLERGY] = TEXTS(
        "What am I allergic to?", "Do I have an allergy?", "Which food must I avoid?",
        "What is my allergy?", "Tell me my allergy.", "Which food makes me ill?",
        "What can I not eat?", "What food is bad for me?", "What must I not eat?",
        "Is there something I should not eat?", "What does my body not tolerate?",
        "Do you know my allergy?", "What should a cook know about me?",
        "What must I tell the restaurant before I order?", "Which ingredient is dangerous for me?",
        "I am ordering food. What should not be in it?", "What gives me an allergic reaction?",
        "What makes my skin itch if I eat it?", "Which allergy do I have?",
        "What did the doctor tell me to avoid?", "What would be a problem in my lunch?",
        "What can't I have for dessert?", "Which snack should nobody offer me?",
        "What is not safe for me?", "What would make me sick?", "Do I tolerate every food?",
        "I am buying chocolate. What should not be inside?", "Why do I carry an emergency pen?",
        "What should the school kitchen know about me?", "What must not touch my plate?",
        "My lips are swollen after the cake. What was in it?", "What do I never buy?"),
    [FACT_FAVOURITE] = TEXTS(
        "What is my favourite %T?", "Which %T do I like best?", "Do you know my favourite %T?",
        "What %T do I love?", "Tell me my favourite %T.", "Which %T do I prefer?",
        "If I could have only one %T, which would it be?", "What is my preferred %T?",
        "Do you remember which %T I like?", "Which %T pleases me most?", "What %T am I fond of?",
        "Name the %T I like best.", "Which %T should you choose for me?", "Choose a %T for me.",
        "What sort of %T do I enjoy?", "Guess my favourite %T.", "Have I told you which %T I love?",
        "Which %T is number one for me?", "Of all of them, which %T is mine?",
        "What's the best %T, if you ask me?"),
    [FACT_JOB] = TEXTS(
        "What is my job?", "What do I do for work?", "What is my profession?",
        "How do I earn my living?", "Tell me my job.", "What do I work as?", "Do you know my job?",
        "What am I by profession?", "What kind of work do I do?", "What is my trade?",
        "What do I do all day at work?", "What am I employed as?", "What is my line of work?",
        "What is my role at work?", "What do I do on weekdays?", "Do you remember what I do?",
        "I am filling in a form. What do I write under occupation?", "What do people hire me for?",
        "Which career did I choose?", "What should stand in my CV as my job?",
        "If someone asks about my job, what do you tell them?", "What do I get paid for?",
        "What do customers come to me for?", "What is my work?",
        "What would my colleagues say I am?", "What did I learn as a profession?",
        "What do I do from nine to five?", "Which vocation do I have?", "How do I pay my bills?",
        "What is on the sign of my shop?", "What am I good at, professionally?",
        "Describe my job in a word."),
    [FACT_BIRTHDAY] =
        TEXTS("When is my birthday?", "In which month is my birthday?", "When was I born?",
              "Do you know when my birthday is?", "Tell me my birthday.",
              "What is my date of birth?", "When do I celebrate my birthday?",
              "What is the date of my birthday?", "When do I have my birthday?",
              "When should you wish me a happy birthday?", "Do you remember my birthday?",
              "When did I come into the world?", "What time of the year was I born?",
              "I am filling in a form. What do I write under date of birth?",
              "My birthday is soon. When exactly?", "When do I celebrate the day I was born?",
              "When is my big day?", "When should I invite my friends to my birthday?",
              "When do people sing for me?", "When does my age go up?", "When do I get older?",
              "When is there a party because of me?", "Which month was I born in?",
              "When do my friends bring me flowers and gifts?", "When will I be a year older?",
              "When was the day of my birth?", "When do I unwrap my birthday gifts?",
              "When should my family come and celebrate me?", "When do I need a birthday cake?",
              "What month is special for me?"),
    [FACT_LEARNS] = TEXTS(
        "What am I learning?", "Which language am I learning?", "What language do I study?",
        "Do you know what I am learning?", "Tell me what I am learning.", "What am I practising?",
        "What lessons do I take?", "What do I study?", "What am I studying at the moment?",
        "What course am I taking?", "What do I practise in the evening?",
        "What is my teacher teaching me?", "Do you remember what I am learning?",
        "What do I have lessons in?", "What is my textbook about?", "What do I do homework for?",
        "What do I learn in my free time?", "What would I like to be good at?",
        "Which language do I want to speak?", "What new language do I try to speak?",
        "In which language do I do exercises?", "Which language should we practise together?",
        "Of what language am I memorising the words?", "Which language is still hard for me?",
        "What language interests me?", "Which country's language do I learn?",
        "Whose grammar am I trying to understand?", "What does my language app teach me?",
        "In which language do I want to read novels?",
        "I need a translator's help. Into what language?"),
    [FACT_LIKES] =
        TEXTS("What do I like?", "What do I love?", "What do I enjoy?", "Do you know what I like?",
              "Tell me something that I like.", "What makes me happy?", "What am I fond of?",
              "Do you remember what I like?", "What pleases me?",
              "What would be a nice surprise for me?", "What do I like to do or have?",
              "Name something I love.", "What gives me joy?", "What are my likes?"),
    [FACT_DISLIKES] = TEXTS(
        "What do I not like?", "What do I dislike?", "What do I hate?",
        "Do you know what I don't like?", "Tell me something that I don't like.",
        "What should you spare me?", "What annoys me?", "What can't I stand?",
        "Do you remember what I dislike?", "What would spoil my day?", "What are my dislikes?",
        "Name something I hate.", "What do I try to avoid?", "What am I not fond of?"),
    [FACT_AGE] = TEXTS(
        "How old am I?", "What is my age?", "Do you know how old I am?", "Tell me my age.",
        "Do you remember my age?", "How many years old am I?", "How many candles are on my cake?",
        "I am filling in a form. What do I write under age?", "For how many years have I lived?",
        "What age am I?", "Say how old I am.", "How many birthdays have I had?"),
    [FACT_IS] =
        TEXTS("What is my %T?", "Do you know my %T?", "Tell me my %T.", "Do you remember my %T?",
              "What's my %T?", "What was my %T again?", "Say what my %T is.",
              "Have I told you my %T?", "I am filling in a form. What do I write under %T?",
              "Someone asks about my %T. What do you say?", "What should you know about my %T?",
              "Do you know what my %T is?", "How would you describe my %T?", "Let me know my %T."),
    [FACT_GENERAL] = TEXTS(NULL),
};

static const struct {
    fact_kind kind;
    const char *things; /* which things the questions are about */
    const char *const *questions;
} about[] = {
    {FACT_CALLED, PETS,
     TEXTS("What is my pet called?", "Do I have a pet?", "Which animal lives with me?",
           "What is the name of my pet?", "Who lives in my house besides me?",
           "What name is on my %T's bowl?", "How do I call my %T to dinner?",
           "Which animal do I look after?", "Who do I take to the animal doctor?",
           "I need to feed the %T. What is its name?", "My %T is sleeping on the sofa. Who is it?",
           "Who greets me at my door?", "Tell me about my %T.", "Who is my furry friend?")},
    {FACT_CALLED, "dog puppy",
     TEXTS("Who do I go for walks with?", "Who barks in my house?", "Who chews on my shoes?",
           "What is my puppy called?")},
    {FACT_CALLED, "cat kitten",
     TEXTS("Who purrs on my sofa?", "Who catches mice in my house?", "What is my kitten called?")},
    {FACT_CALLED, PEOPLE,
     TEXTS("What is my %T's first name?", "I am writing to my %T. What name do I begin with?",
           "Who in my life is called what? I mean my %T.", "How should you address my %T?",
           "I am calling my %T. Who is that?", "With whom do I celebrate, if I invite my %T?")},
    {FACT_FAVOURITE, "colour color",
     TEXTS("What color do I like?", "In which colour do I like my clothes?",
           "What colour are the things I buy?", "Which colour looks good to me on a wall?",
           "What colour of car would I want?", "Which colour do I wear most?",
           "What colour should my new phone have?",
           "I'm choosing curtains. Which colour will I take?",
           "Wrap my present in paper. Which colour would please me?",
           "I am buying a bag. In what colour?", "What is the nicest colour in my eyes?",
           "Which tone do I love to look at?")},
    {FACT_FAVOURITE, "food dish meal dessert fruit vegetable drink",
     TEXTS("What do I like to have at the table?", "What should you order for me?",
           "What should I get for dinner to be happy?", "What do I never get tired of?")},
    {FACT_FAVOURITE, "book film movie song band singer author series game sport",
     TEXTS("What do I recommend to everyone?", "What do I never get tired of?",
           "What should we do or watch together?")},
};

const char *const *fact_questions(fact_kind kind)
{
    return questions[kind];
}

const char *const *fact_questions_about(fact_kind kind, const char *thing, size_t number)
{
    for (size_t i = 0; i < sizeof about / sizeof *about; i++)
        if (about[i].kind == kind && fact_word_in(thing, about[i].things) && number-- == 0)
            return about[i].questions;
    return NULL;
}
