#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/data.h"

namespace stagecoach {

/// A training sequence or a document of one: `length` inputs from token `first` on, of which each
/// is followed by its label.
struct TokenWindow {
  int64_t first = 0;
  int64_t length = 0;
};

/// The sequences of a data set, in order, at a stride of `sequence` tokens: from the first token on
/// (stream), or from the first token of every document (pad). Those without any target are left
/// out. With documents, what pad has is packed: `kPackedTogether` pieces that follow each other
/// fill sequences by best fit, so that a table of 16 bytes a piece and 8 a sequence is all that is
/// kept. Thread rule: any thread.
class TokenWindows {
 public:
  /// Pieces among which best fit chooses; the sequences that are filled last have room left.
  static constexpr size_t kPackedTogether = size_t{1} << 16;

  /// `data` must outlive it. Of a stream, what is left behind the last whole sequence belongs to it
  /// with `keep_tail`. Errors: invalid argument for data too short for one sequence, with tokens
  /// found and needed, and where no sequence has a target; those of the files.
  static Result<TokenWindows> create(const TokenData& data, int64_t sequence, bool keep_tail);

  const TokenData& data() const { return *data_; }
  int64_t sequence() const { return sequence_; }
  int64_t count() const { return count_; }
  /// The pieces that sequence `index` is made of, one behind the other: one, unless documents are
  /// packed.
  std::span<const TokenWindow> pieces(int64_t index, TokenWindow& single) const;
  /// Pieces of all sequences.
  int64_t piece_count() const;
  /// Documents too long for one sequence, where they are kept apart: cut into several pieces.
  int64_t cut_documents() const { return cut_documents_; }
  /// Pieces that have no target, and what the first of them is: "'FILE' document 7".
  int64_t left_out() const { return left_out_; }
  const std::string& first_left_out() const { return first_left_out_; }

  /// Inputs, labels and where each token's piece starts in sequence `index`, `sequence` each,
  /// filled up with token 0 and labels that are ignored, a piece of its own. Null where starts are
  /// not wanted. Errors: those of TokenData::read.
  Status read(int64_t index, int32_t* inputs, int32_t* labels, int32_t* starts) const;

 private:
  TokenWindows(const TokenData& data, int64_t sequence) : data_(&data), sequence_(sequence) {}
  Status add_stream(bool keep_tail);
  Status add_documents();
  Status add(TokenWindow window, std::vector<int32_t>& scratch);
  void pack();
  Status check() const;

  const TokenData* data_;
  int64_t sequence_;
  int64_t count_ = 0;
  std::vector<TokenWindow> table_;     ///< pieces; empty: every stride is one
  std::vector<int64_t> first_pieces_;  ///< of packed sequences, and the end; else a piece is one
  int64_t cut_documents_ = 0;
  int64_t left_out_ = 0;
  std::string first_left_out_;
};

}  // namespace stagecoach
