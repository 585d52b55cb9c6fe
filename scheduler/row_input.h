#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace stagecoach {

/// What layers read beside their input: a row for each token, made on the host for every
/// micro-batch. It goes up with the input of each stage that has a layer which needs it, again for
/// a backward that recomputes, and has no gradient.
enum class RowInput : uint8_t {
  kLabels,          ///< what is to be predicted
  kDocumentStarts,  ///< int32: position in its sequence where a row's document begins
  kPositions        ///< int32: a row's position in its document
};
inline constexpr std::array<RowInput, 3> kRowInputs = {RowInput::kLabels, RowInput::kDocumentStarts,
                                                       RowInput::kPositions};

/// How messages and traces call it. A literal.
constexpr const char* row_input_name(RowInput input) {
  constexpr std::array<const char*, kRowInputs.size()> kNames = {"labels", "document starts",
                                                                 "positions"};
  return kNames[static_cast<size_t>(input)];
}

/// A value for each row input.
template <typename Value>
struct PerRowInput {
  std::array<Value, kRowInputs.size()> values = {};

  Value& operator[](RowInput input) { return values[static_cast<size_t>(input)]; }
  const Value& operator[](RowInput input) const { return values[static_cast<size_t>(input)]; }
};

}  // namespace stagecoach
