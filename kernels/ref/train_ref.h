/* The reference training operations (see train_ref.c). */
#ifndef KN_TRAIN_REF_H
#define KN_TRAIN_REF_H

#include "../train.h"

extern const kn_train_ops kn_train_ops_ref;

#endif
