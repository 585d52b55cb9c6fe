#pragma once

#include <hwy/base.h>

// To be included before Highway's own headers by every file it compiles several times. Each target
// adds to the program: those of few processors, or that gain nothing over another one, are out.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
