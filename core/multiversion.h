#pragma once

/// Put before a function definition: compiles it for plain x86-64, AVX2 and AVX-512 and picks one
/// when the program is loaded, so that one binary runs on all and is fast on each. Bits may differ
/// between machines of different kinds (fused multiply-add), never between runs on one.
///
/// Not for templates or functions in headers. Helpers it calls must be inlined (kept `static
/// inline` in the same file) to be compiled for the same machine. ThreadSanitizer starts up after
/// the loader has run the pickers, which would crash, so there the plain version is the only one.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define STAGECOACH_NO_MULTIVERSION
#endif
#endif
#if defined(__SANITIZE_THREAD__) || !defined(__x86_64__) || !defined(__gnu_linux__)
#define STAGECOACH_NO_MULTIVERSION
#endif

#ifdef STAGECOACH_NO_MULTIVERSION
#define STAGECOACH_MULTIVERSION
#else
#define STAGECOACH_MULTIVERSION \
  __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#endif

/// For those helpers: inlined always, whatever the optimiser thinks. Pass vectors by reference.
#define STAGECOACH_ALWAYS_INLINE __attribute__((always_inline)) inline
