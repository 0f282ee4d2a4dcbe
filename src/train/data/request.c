#include "train/data/request.h"

#include <string.h>

static const char *const method_names[] = {
    [TRAIN_LORAP] = "lorap",
    [TRAIN_DIREFTP] = "direftp",
    [TRAIN_LORA] = "lora",
    [TRAIN_DIREFT] = "direft",
};
#define N_METHODS (sizeof method_names / sizeof method_names[0])

const char *train_method_name(train_method m)
{
    return method_names[m];
}

bool train_method_parse(const char *name, train_method *out)
{
    for (size_t i = 0; i < N_METHODS; i++) {
        if (strcmp(name, method_names[i]) != 0) continue;
        *out = (train_method)i;
        return true;
    }
    return false;
}
