#pragma once

#include <cstdint>
#include <vector>

#include "train/data.h"

namespace stagecoach {

/// A training sequence: `length` inputs from token `first` on, of which each is followed by its
/// label.
struct TokenWindow {
  int64_t first = 0;
  int64_t length = 0;
};

/// The sequences of a data set, in order, at a stride of `sequence` tokens: from the first token on
/// (stream), or from the first token of every document (pad). Those without any target are left
/// out. Thread rule: any thread.
class TokenWindows {
 public:
  /// `data` must outlive it. Of a stream, what is left behind the last whole sequence belongs to it
  /// with `keep_tail`. Errors: invalid argument for data too short for one sequence, with tokens
  /// found and needed, and where no sequence has a target; those of the files.
  static Result<TokenWindows> create(const TokenData& data, int64_t sequence, bool keep_tail);

  const TokenData& data() const { return *data_; }
  int64_t sequence() const { return sequence_; }
  int64_t count() const { return count_; }
  TokenWindow at(int64_t index) const;
  /// Documents too long for one sequence, where none holds more than one: cut into several.
  int64_t cut_documents() const { return cut_documents_; }
  /// Sequences that have no target, and what the first of them is: "'FILE' document 7".
  int64_t left_out() const { return left_out_; }
  const std::string& first_left_out() const { return first_left_out_; }

  /// Inputs and labels of sequence `index`, `sequence` each, filled up with token 0 and labels that
  /// are ignored. Errors: those of TokenData::read.
  Status read(int64_t index, int32_t* inputs, int32_t* labels) const;

 private:
  TokenWindows(const TokenData& data, int64_t sequence) : data_(&data), sequence_(sequence) {}
  Status add_stream(bool keep_tail);
  Status add_documents();
  Status add(TokenWindow window, std::vector<int32_t>& scratch);
  Status check() const;

  const TokenData* data_;
  int64_t sequence_;
  int64_t count_ = 0;
  std::vector<TokenWindow> table_;  ///< empty: every stride is one
  int64_t cut_documents_ = 0;
  int64_t left_out_ = 0;
  std::string first_left_out_;
};

}  // namespace stagecoach
