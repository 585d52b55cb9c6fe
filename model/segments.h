#pragma once

// The segments that layers are made of, by family.

#include "model/attention_segment.h"
#include "model/decoder_segments.h"
#include "model/dense_segments.h"
#include "model/elementwise_segments.h"
#include "model/expert_segments.h"
#include "model/token_segments.h"
