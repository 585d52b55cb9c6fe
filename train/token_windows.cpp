#include "train/token_windows.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "train/document_packing.h"
#include "train/interrupt.h"
#include "train/labels.h"

namespace stagecoach {

Result<TokenWindows> TokenWindows::create(const TokenData& data, int64_t sequence, bool keep_tail) {
  STAGECOACH_CHECK(sequence > 0);
  TokenWindows windows(data, sequence);
  STAGECOACH_RETURN_IF_ERROR(data.packing == Packing::kStream ? windows.add_stream(keep_tail)
                                                              : windows.add_documents());
  STAGECOACH_RETURN_IF_ERROR(windows.check());
  if (data.packing == Packing::kDocuments) windows.pack();
  return windows;
}

Status TokenWindows::add_stream(bool keep_tail) {
  int64_t targets = data_->count - 1;
  count_ = keep_tail ? (targets + sequence_ - 1) / sequence_ : targets / sequence_;
  if (!data_->has_boundaries()) return Status::ok();
  std::vector<int32_t> scratch;
  int64_t strides = count_;
  count_ = 0;
  for (int64_t i = 0; i < strides; ++i) {
    int64_t first = i * sequence_;
    STAGECOACH_RETURN_IF_ERROR(add({first, std::min(sequence_, targets - first)}, scratch));
  }
  return Status::ok();
}

Status TokenWindows::add_documents() {
  std::vector<int32_t> scratch;
  for (size_t s = 0; s < data_->sources.size(); ++s) {
    const TokenSource& source = data_->sources[s];
    for (size_t d = 0; d < source.documents.size(); ++d) {
      int64_t first = source.documents[d];
      int64_t end = d + 1 < source.documents.size() ? source.documents[d + 1] : source.count;
      if (first + 1 == end) {  // nothing follows its only token
        STAGECOACH_RETURN_IF_ERROR(add({data_->starts[s] + first, 0}, scratch));
      }
      if (end - first - 1 > sequence_) ++cut_documents_;
      for (; first + 1 < end; first += sequence_) {
        int64_t length = std::min(sequence_, end - first - 1);
        STAGECOACH_RETURN_IF_ERROR(add({data_->starts[s] + first, length}, scratch));
      }
    }
  }
  return Status::ok();
}

/// Adds a sequence, or counts it where it has no target.
Status TokenWindows::add(TokenWindow window, std::vector<int32_t>& scratch) {
  if (InterruptGuard::is_interrupted()) return cancelled("reading data was interrupted");
  size_t index = data_->source_of(window.first);
  const TokenSource& source = data_->sources[index];
  bool has_target = window.length > 0;
  // In a document of its own and without a mask, every label is a target.
  if (has_target && (data_->packing == Packing::kStream || source.mask != nullptr)) {
    scratch.resize(static_cast<size_t>(2 * window.length));
    int32_t* labels = scratch.data() + window.length;
    STAGECOACH_RETURN_IF_ERROR(data_->read(window.first, window.length, scratch.data(), labels));
    has_target = std::any_of(labels, labels + window.length,
                             [](int32_t label) { return label != kIgnoredLabel; });
  }
  if (has_target) {
    table_.push_back(window);
    ++count_;
    return Status::ok();
  }
  if (left_out_++ > 0) return Status::ok();
  const std::vector<int64_t>& documents = source.documents;
  auto document =
      std::upper_bound(documents.begin(), documents.end(), window.first - data_->starts[index]);
  first_left_out_ = fmt::format("'{}' document {}", source.name(), document - documents.begin());
  return Status::ok();
}

/// Puts the pieces of each sequence side by side, in the order of the data.
void TokenWindows::pack() {
  count_ = 0;
  first_pieces_.push_back(0);
  std::vector<int64_t> lengths;
  std::vector<TokenWindow> packed;
  for (size_t first = 0; first < table_.size(); first += kPackedTogether) {
    std::span<TokenWindow> together =
        std::span(table_).subspan(first, std::min(kPackedTogether, table_.size() - first));
    lengths.clear();
    for (const TokenWindow& piece : together) lengths.push_back(piece.length);
    std::vector<int64_t> sequences = pack_best_fit(lengths, sequence_);
    int64_t count = *std::max_element(sequences.begin(), sequences.end()) + 1;
    // Counted, then placed.
    std::vector<size_t> next(static_cast<size_t>(count) + 1, 0);
    for (int64_t sequence : sequences) ++next[static_cast<size_t>(sequence) + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    for (size_t i = 1; i < next.size(); ++i) {
      first_pieces_.push_back(static_cast<int64_t>(first + next[i]));
    }
    packed.resize(together.size());
    for (size_t i = 0; i < together.size(); ++i) {
      packed[next[static_cast<size_t>(sequences[i])]++] = together[i];
    }
    std::copy(packed.begin(), packed.end(), together.begin());
    count_ += count;
  }
}

Status TokenWindows::check() const {
  if (count_ > 0) return Status::ok();
  const std::string& name = data_->sources.front().name();
  const char* more = data_->sources.size() > 1 ? " and the files after it" : "";
  if (left_out_ > 0) {
    return invalid_argument(fmt::format(
        "'{}'{}: none of {} sequences holds anything to be predicted: every label is masked or "
        "there is nothing before it; give records with a completion, or with more text",
        name, more, left_out_));
  }
  // Nothing is learned from sequences of a few tokens.
  constexpr int64_t kLeastSequence = 16;
  int64_t most = data_->count - 1;
  return invalid_argument(fmt::format(
      "'{}'{} holds {} tokens; one sequence of {} and its next token need {}: give more text{}",
      name, more, data_->count, sequence_, sequence_ + 1,
      most < kLeastSequence ? "" : fmt::format(" or lower data.sequence to {} or less", most)));
}

std::span<const TokenWindow> TokenWindows::pieces(int64_t index, TokenWindow& single) const {
  STAGECOACH_CHECK(index >= 0 && index < count_);
  auto at = static_cast<size_t>(index);
  if (!first_pieces_.empty()) {
    auto first = static_cast<size_t>(first_pieces_[at]);
    return std::span(table_).subspan(first, static_cast<size_t>(first_pieces_[at + 1]) - first);
  }
  if (!table_.empty()) return std::span(table_).subspan(at, 1);
  int64_t first = index * sequence_;
  single = {first, std::min(sequence_, data_->count - 1 - first)};
  return {&single, 1};
}

int64_t TokenWindows::piece_count() const {
  return table_.empty() ? count_ : static_cast<int64_t>(table_.size());
}

Status TokenWindows::read(int64_t index, int32_t* inputs, int32_t* labels, int32_t* starts) const {
  TokenWindow single;
  int64_t at = 0;
  for (const TokenWindow& piece : pieces(index, single)) {
    STAGECOACH_RETURN_IF_ERROR(data_->read(piece.first, piece.length, inputs + at, labels + at));
    if (starts != nullptr) std::fill_n(starts + at, piece.length, static_cast<int32_t>(at));
    at += piece.length;
  }
  std::fill(inputs + at, inputs + sequence_, 0);
  std::fill(labels + at, labels + sequence_, kIgnoredLabel);
  if (starts != nullptr) std::fill(starts + at, starts + sequence_, static_cast<int32_t>(at));
  return Status::ok();
}

}  // namespace stagecoach
