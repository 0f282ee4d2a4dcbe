/* What tests of this process's own memory need to know about the build. */
#ifndef PF_TESTS_SANITIZER_H
#define PF_TESTS_SANITIZER_H

/* The address and thread sanitizers map terabytes of their own, and keep what was freed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_IS_SEARCHABLE 0
#elif defined(__has_feature)
#define MEMORY_IS_SEARCHABLE (!__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer))
#else
#define MEMORY_IS_SEARCHABLE 1
#endif

#endif
