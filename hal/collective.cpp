#include "hal/collective.h"

#include <algorithm>
#include <fmt/format.h>

#include "hal/ops.h"
#include "hal/validation.h"

namespace stagecoach {

namespace {

/// Fp32 sums of the smallest storage type take twice its bytes.
constexpr ByteCount kLargestGrowth = 2;
constexpr ByteCount kSmallestPieceBytes = 256;

Status rank_error(std::string_view verb, size_t rank, std::string_view problem) {
  Status status = invalid_argument(fmt::format("rank {}: {}", rank, problem));
  FailureSite site;
  site.verb = std::string(verb);
  return status.with_site(site);
}

/// What one rank lends to the collective. A rank's device memory is touched by its own stream only,
/// so reuse of the device pieces needs no waits.
struct Rank {
  Stream* stream = nullptr;
  BufferHandle host_piece;         // pinned: pieces on their way out
  BufferHandle arrived_piece;      // device: a piece that came in
  BufferHandle sum_piece;          // device: the fp32 sum being built
  std::vector<Timepoint> readers;  // by rank: last read of host_piece
};

TensorView piece_of(const TensorView& tensor, int64_t first, int64_t count) {
  ByteCount element = dtype_size_bytes(tensor.dtype);
  return TensorView{tensor.memory.slice(first * element, count * element), tensor.dtype,
                    Shape{count}};
}

class HostStagedCollective final : public Collective {
 public:
  HostStagedCollective(std::vector<Rank> ranks, ByteCount max_piece_bytes)
      : ranks_(std::move(ranks)), max_piece_bytes_(max_piece_bytes) {}

  int rank_count() const override { return static_cast<int>(ranks_.size()); }

  Result<std::vector<Timepoint>> all_gather(const std::vector<TensorView>& in,
                                            const std::vector<TensorView>& out) override;
  Result<std::vector<Timepoint>> reduce_scatter(const std::vector<TensorView>& in,
                                                const std::vector<TensorView>& out) override;
  Result<std::vector<Timepoint>> reduce(const std::vector<TensorView>& in, const TensorView& out,
                                        int root) override;

 private:
  Status check_tensors(std::string_view verb, const std::vector<TensorView>& tensors,
                       int64_t element_count) const;
  /// Brings `piece` of rank `from` to its pinned piece; others may then `receive` it.
  Result<Timepoint> send(size_t from, const TensorView& piece);
  Status receive(size_t from, size_t to, Timepoint sent, BufferView target);
  Status gather_piece(size_t from, const std::vector<TensorView>& in,
                      const std::vector<TensorView>& out, int64_t first, int64_t count);
  /// Sums elements [first, first + count) of all `in` on rank `to` and rounds them into `out`.
  Status sum_piece(size_t to, const std::vector<TensorView>& in, const TensorView& out,
                   int64_t first, int64_t count);
  Status sum_range(size_t to, const std::vector<TensorView>& in, const TensorView& out,
                   int64_t first);
  int64_t piece_elements(DType dtype) const { return max_piece_bytes_ / dtype_size_bytes(dtype); }
  Result<std::vector<Timepoint>> ends();

  std::vector<Rank> ranks_;
  const ByteCount max_piece_bytes_;
};

Status HostStagedCollective::check_tensors(std::string_view verb,
                                           const std::vector<TensorView>& tensors,
                                           int64_t element_count) const {
  if (tensors.size() != ranks_.size()) {
    return rank_error(verb, tensors.size(),
                      fmt::format("{} tensors for {} ranks", tensors.size(), ranks_.size()));
  }
  for (size_t r = 0; r < tensors.size(); ++r) {
    const TensorView& tensor = tensors[r];
    Status valid =
        internal::validate_device_memory(tensor.memory, ranks_[r].stream->device(), "the tensor");
    if (!valid.is_ok()) return rank_error(verb, r, valid.message());
    if (!dtype_is_float(tensor.dtype) || tensor.dtype == DType::kF64) {
      return rank_error(
          verb, r, fmt::format("dtype {} is not fp32, bf16 or fp16", dtype_name(tensor.dtype)));
    }
    if (tensor.dtype != tensors[0].dtype) return rank_error(verb, r, "dtypes differ");
    if (tensor.element_count() != element_count || tensor.size_bytes() != tensor.memory.size) {
      return rank_error(verb, r,
                        fmt::format("{} elements in {} bytes where {} elements are needed",
                                    tensor.element_count(), tensor.memory.size, element_count));
    }
  }
  return Status::ok();
}

Result<Timepoint> HostStagedCollective::send(size_t from, const TensorView& piece) {
  Rank& rank = ranks_[from];
  for (Timepoint& reader : rank.readers) {
    if (!reader.is_none()) STAGECOACH_RETURN_IF_FAILED(rank.stream->wait(reader));
    reader = Timepoint{};
  }
  STAGECOACH_RETURN_IF_FAILED(rank.stream->copy(
      {rank.host_piece->slice(0, piece.memory.size), piece.memory, "collective send"}));
  return rank.stream->mark();
}

Status HostStagedCollective::receive(size_t from, size_t to, Timepoint sent, BufferView target) {
  Stream& stream = *ranks_[to].stream;
  STAGECOACH_RETURN_IF_FAILED(stream.wait(sent));
  STAGECOACH_RETURN_IF_FAILED(
      stream.copy({target, ranks_[from].host_piece->slice(0, target.size), "collective receive"}));
  STAGECOACH_ASSIGN_OR_RETURN(ranks_[from].readers[to], stream.mark());
  return Status::ok();
}

Status HostStagedCollective::gather_piece(size_t from, const std::vector<TensorView>& in,
                                          const std::vector<TensorView>& out, int64_t first,
                                          int64_t count) {
  TensorView piece = piece_of(in[from], first, count);
  int64_t place = static_cast<int64_t>(from) * in[from].element_count() + first;
  STAGECOACH_ASSIGN_OR_RETURN(Timepoint sent, send(from, piece));
  for (size_t to = 0; to < ranks_.size(); ++to) {
    BufferView target = piece_of(out[to], place, count).memory;
    bool in_place =
        to == from && target.buffer == piece.memory.buffer && target.offset == piece.memory.offset;
    if (!in_place) STAGECOACH_RETURN_IF_ERROR(receive(from, to, sent, target));
  }
  return Status::ok();
}

Result<std::vector<Timepoint>> HostStagedCollective::all_gather(
    const std::vector<TensorView>& in, const std::vector<TensorView>& out) {
  int64_t count = in.empty() ? 0 : in[0].element_count();
  STAGECOACH_RETURN_IF_ERROR(check_tensors("all_gather", in, count));
  STAGECOACH_RETURN_IF_ERROR(
      check_tensors("all_gather", out, count * static_cast<int64_t>(ranks_.size())));
  if (in[0].dtype != out[0].dtype) return rank_error("all_gather", 0, "in and out differ in dtype");
  int64_t step = piece_elements(in[0].dtype);
  for (int64_t first = 0; first < count; first += step) {
    for (size_t from = 0; from < ranks_.size(); ++from) {
      STAGECOACH_RETURN_IF_ERROR(gather_piece(from, in, out, first, std::min(step, count - first)));
    }
  }
  return ends();
}

Status HostStagedCollective::sum_piece(size_t to, const std::vector<TensorView>& in,
                                       const TensorView& out, int64_t first, int64_t count) {
  Rank& rank = ranks_[to];
  Ops& ops = rank.stream->device().ops();
  TensorView sum{rank.sum_piece->slice(0, count * dtype_size_bytes(DType::kF32)), DType::kF32,
                 Shape{count}};
  for (size_t from = 0; from < ranks_.size(); ++from) {
    TensorView addend = piece_of(in[from], first, count);
    if (from != to) {
      STAGECOACH_ASSIGN_OR_RETURN(Timepoint sent, send(from, addend));
      addend.memory = rank.arrived_piece->slice(0, addend.memory.size);
      STAGECOACH_RETURN_IF_ERROR(receive(from, to, sent, addend.memory));
    }
    if (from > 0) {
      STAGECOACH_RETURN_IF_FAILED(ops.accumulate(*rank.stream, {sum, addend, "collective sum"}));
    } else if (addend.dtype == DType::kF32) {
      STAGECOACH_RETURN_IF_FAILED(rank.stream->copy({sum.memory, addend.memory, "collective sum"}));
    } else {
      STAGECOACH_RETURN_IF_FAILED(ops.convert(*rank.stream, {sum, addend, "collective sum"}));
    }
  }
  if (out.dtype == DType::kF32) {
    STAGECOACH_RETURN_IF_FAILED(rank.stream->copy({out.memory, sum.memory, "collective result"}));
  } else {
    STAGECOACH_RETURN_IF_FAILED(ops.convert(*rank.stream, {out, sum, "collective result"}));
  }
  return Status::ok();
}

Status HostStagedCollective::sum_range(size_t to, const std::vector<TensorView>& in,
                                       const TensorView& out, int64_t first) {
  int64_t count = out.element_count();
  int64_t step = piece_elements(in[0].dtype);
  for (int64_t done = 0; done < count; done += step) {
    int64_t now = std::min(step, count - done);
    STAGECOACH_RETURN_IF_ERROR(sum_piece(to, in, piece_of(out, done, now), first + done, now));
  }
  return Status::ok();
}

Result<std::vector<Timepoint>> HostStagedCollective::reduce_scatter(
    const std::vector<TensorView>& in, const std::vector<TensorView>& out) {
  int64_t count = in.empty() ? 0 : in[0].element_count();
  int64_t ranks = static_cast<int64_t>(ranks_.size());
  STAGECOACH_RETURN_IF_ERROR(check_tensors("reduce_scatter", in, count));
  if (count % ranks != 0) {
    return rank_error("reduce_scatter", 0,
                      fmt::format("{} elements do not divide among {} ranks", count, ranks));
  }
  STAGECOACH_RETURN_IF_ERROR(check_tensors("reduce_scatter", out, count / ranks));
  for (size_t r = 0; r < ranks_.size(); ++r) {
    STAGECOACH_RETURN_IF_ERROR(sum_range(r, in, out[r], static_cast<int64_t>(r) * (count / ranks)));
  }
  return ends();
}

Result<std::vector<Timepoint>> HostStagedCollective::reduce(const std::vector<TensorView>& in,
                                                            const TensorView& out, int root) {
  int64_t count = in.empty() ? 0 : in[0].element_count();
  STAGECOACH_RETURN_IF_ERROR(check_tensors("reduce", in, count));
  if (root < 0 || root >= rank_count()) {
    return invalid_argument(fmt::format("root is {}; it must be 0 to {}", root, rank_count() - 1));
  }
  size_t to = static_cast<size_t>(root);
  Status valid =
      internal::validate_device_memory(out.memory, ranks_[to].stream->device(), "the result");
  if (!valid.is_ok()) return rank_error("reduce", to, valid.message());
  if (out.element_count() != count || out.size_bytes() != out.memory.size) {
    return rank_error(
        "reduce", to,
        fmt::format("the result has {} elements, not {}", out.element_count(), count));
  }
  STAGECOACH_RETURN_IF_ERROR(sum_range(to, in, out, 0));
  return ends();
}

Result<std::vector<Timepoint>> HostStagedCollective::ends() {
  std::vector<Timepoint> timepoints;
  for (Rank& rank : ranks_) {
    STAGECOACH_ASSIGN_OR_RETURN(Timepoint end, rank.stream->mark());
    timepoints.push_back(end);
  }
  return timepoints;
}

Result<Rank> make_rank(Stream& stream, size_t rank_count, ByteCount piece_bytes) {
  Device& device = stream.device();
  Rank rank;
  rank.stream = &stream;
  rank.readers.resize(rank_count);
  ByteCount sum_bytes = kLargestGrowth * piece_bytes;
  STAGECOACH_ASSIGN_OR_RETURN(
      rank.host_piece, require_buffer(device.allocate_pinned(piece_bytes, "collective host piece"),
                                      device, piece_bytes, "collective host piece"));
  STAGECOACH_ASSIGN_OR_RETURN(
      rank.arrived_piece, require_buffer(device.allocate(piece_bytes, "collective piece"), device,
                                         piece_bytes, "collective piece"));
  STAGECOACH_ASSIGN_OR_RETURN(rank.sum_piece,
                              require_buffer(device.allocate(sum_bytes, "collective sum"), device,
                                             sum_bytes, "collective sum"));
  return rank;
}

}  // namespace

Result<std::unique_ptr<Collective>> make_host_staged_collective(std::vector<Stream*> streams,
                                                                ByteCount max_piece_bytes) {
  if (streams.empty()) return invalid_argument("a collective needs at least one stream");
  ByteCount piece_bytes = max_piece_bytes / kSmallestPieceBytes * kSmallestPieceBytes;
  if (piece_bytes <= 0) {
    return invalid_argument(fmt::format("max_piece_bytes is {}; it must be at least {}",
                                        max_piece_bytes, kSmallestPieceBytes));
  }
  std::vector<Rank> ranks;
  for (Stream* stream : streams) {
    if (stream == nullptr) return invalid_argument("a stream is null");
    if (!internal::share_events(stream->device(), streams[0]->device())) {
      return invalid_argument(fmt::format("{} and {} are of different backends",
                                          stream->device().id(), streams[0]->device().id()));
    }
    STAGECOACH_ASSIGN_OR_RETURN(Rank rank, make_rank(*stream, streams.size(), piece_bytes));
    ranks.push_back(std::move(rank));
  }
  return std::unique_ptr<Collective>(
      std::make_unique<HostStagedCollective>(std::move(ranks), piece_bytes));
}

}  // namespace stagecoach
