#include "model/weight_transfer.h"

#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <mutex>

#include "core/clock.h"
#include "core/float_pieces.h"
#include "core/task_pool.h"
#include "model/mxfp4.h"
#include "model/weight_match.h"

namespace stagecoach {

namespace {

/// Below this many bytes more threads save nothing that a person notices.
constexpr ByteCount kParallelBytes = 64 * kMiB;
constexpr int kMaxThreads = 8;
/// Elements of a part that one thread reads in one go.
constexpr int64_t kSliceElements = int64_t{4} << 20;
/// Elements of packed matrices that are decoded in one go.
constexpr int64_t kPackedPieceElements = int64_t{256} << 10;
constexpr int64_t kReportIntervalNs = 250'000'000;

const std::vector<WeightRules>& all_rules() {
  static const std::vector<WeightRules> kRules = {
      {"transformer.", "transformer.wte.weight", {".attn.bias", ".attn.masked_bias"}},
      {"model.", "model.embed_tokens.weight", {".rotary_emb.inv_freq"}},
  };
  return kRules;
}

/// Large parts cut, so that threads share them.
std::vector<WeightPart> cut(const std::vector<WeightPart>& parts) {
  std::vector<WeightPart> slices;
  for (const WeightPart& part : parts) {
    if (part.scales != nullptr) {
      slices.push_back(part);  // one matrix, which is read as a whole
      continue;
    }
    for (int64_t done = 0; done < part.count; done += kSliceElements) {
      WeightPart slice = part;
      slice.first += done;
      slice.offset += done;
      slice.count = std::min(kSliceElements, part.count - done);
      slices.push_back(slice);
    }
  }
  return slices;
}

/// Reads parts on several threads; the first failure ends it.
class PartReader {
 public:
  PartReader(const ParameterSink& sink, const LoadProgress& progress, ByteCount total_bytes)
      : sink_(sink), progress_(progress), total_bytes_(total_bytes) {}

  Status read(const std::vector<WeightPart>& slices) {
    int threads = total_bytes_ < kParallelBytes ? 1 : std::min(usable_thread_count(), kMaxThreads);
    std::unique_ptr<TaskPool> pool = TaskPool::create(threads);
    pool->parallel_for(static_cast<int64_t>(slices.size()), [&](int64_t index) {
      if (failed_) return;
      Status status = read_slice(slices[static_cast<size_t>(index)]);
      if (status.is_ok()) return;
      std::lock_guard lock(mutex_);
      if (!failed_.exchange(true)) failure_ = std::move(status);
    });
    return failure_;
  }

 private:
  Status read_plain(const WeightPart& slice) {
    return for_each_float_piece(slice.count, [&](int64_t first, std::span<float> piece) -> Status {
      STAGECOACH_RETURN_IF_ERROR(
          slice.tensor->file->read_f32(*slice.tensor->info, slice.first + first, piece));
      return sink_(slice.block, slice.offset + first, piece);
    });
  }

  /// A packed matrix: its bytes, a seventh of what it is in fp32, then some columns at a time.
  Status read_packed(const WeightPart& slice) {
    const std::vector<int64_t>& shape = slice.scales->info->shape;
    Mxfp4Matrix matrix;
    matrix.rows = shape[1];
    matrix.groups = shape[2];
    int64_t groups = matrix.rows * matrix.groups;
    int64_t index = slice.first / slice.count;
    std::vector<uint8_t> blocks(static_cast<size_t>(groups * kMxfp4GroupBytes));
    std::vector<uint8_t> scales(static_cast<size_t>(groups));
    auto read = [&](const FolderTensor& tensor, std::vector<uint8_t>& bytes) {
      auto size = static_cast<ByteCount>(bytes.size());
      return tensor.file->read(*tensor.info, index * size,
                               std::as_writable_bytes(std::span(bytes)));
    };
    STAGECOACH_RETURN_IF_ERROR(read(*slice.tensor, blocks));
    STAGECOACH_RETURN_IF_ERROR(read(*slice.scales, scales));
    matrix.blocks = blocks;
    matrix.scales = scales;
    int64_t together = std::max<int64_t>(1, kPackedPieceElements / matrix.rows);
    std::vector<float> piece;
    for (int64_t column = 0; column < matrix.columns(); column += together) {
      int64_t columns = std::min(together, matrix.columns() - column);
      piece.resize(static_cast<size_t>(columns * matrix.rows));
      if (Status status = decode_mxfp4_columns(matrix, column, piece); !status.is_ok()) {
        return status.with_context(fmt::format("'{}', tensor '{}', matrix {}",
                                               slice.scales->file->path(), slice.scales->info->name,
                                               index));
      }
      STAGECOACH_RETURN_IF_ERROR(sink_(slice.block, slice.offset + column * matrix.rows, piece));
    }
    return Status::ok();
  }

  Status read_slice(const WeightPart& slice) {
    Status status = slice.scales != nullptr ? read_packed(slice) : read_plain(slice);
    ByteCount read = read_bytes_ += slice.size_bytes();
    if (!progress_) return status;
    std::unique_lock lock(mutex_, std::try_to_lock);
    int64_t now_ns = RealClock::instance().now_ns();
    if (!lock.owns_lock() || now_ns - reported_ns_ < kReportIntervalNs) return status;
    reported_ns_ = now_ns;
    progress_(read, total_bytes_);
    return status;
  }

  const ParameterSink& sink_;
  const LoadProgress& progress_;
  ByteCount total_bytes_;
  std::atomic<ByteCount> read_bytes_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  Status failure_;
  int64_t reported_ns_ = RealClock::instance().now_ns();
};

}  // namespace

const WeightRules& weight_rules_of(const Network& network) {
  static const WeightRules kNone;
  for (const ParameterBlock& block : network.blocks) {
    for (const ParameterInfo& parameter : block.parameters) {
      for (const WeightRules& rules : all_rules()) {
        if (parameter.name == rules.embedding) return rules;
      }
    }
  }
  return kNone;
}

WeightNaming naming_of(const WeightFolder& folder) {
  for (const FolderTensor& tensor : folder.tensors()) {
    for (const WeightRules& rules : all_rules()) {
      if (tensor.info->name.starts_with(rules.prefix)) return WeightNaming::kPrefixed;
    }
  }
  return WeightNaming::kBare;
}

std::string file_name_of(std::string_view parameter, WeightNaming naming) {
  for (const WeightRules& rules : all_rules()) {
    if (naming != WeightNaming::kBare || !parameter.starts_with(rules.prefix)) continue;
    return std::string(parameter.substr(rules.prefix.size()));
  }
  return std::string(parameter);
}

Result<LoadedWeights> load_weights(const std::string& folder, const Network& network,
                                   const ParameterSink& sink, const LoadProgress& progress) {
  int64_t start_ns = RealClock::instance().now_ns();
  STAGECOACH_ASSIGN_OR_RETURN(WeightFolder weights, WeightFolder::open(folder));
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<WeightPart> parts, match_weights(weights, network));
  LoadedWeights loaded;
  loaded.naming = naming_of(weights);
  for (const WeightPart& part : parts) loaded.bytes += part.size_bytes();
  STAGECOACH_RETURN_IF_ERROR(PartReader(sink, progress, loaded.bytes).read(cut(parts)));
  loaded.seconds = static_cast<double>(RealClock::instance().now_ns() - start_ns) * 1e-9;
  return loaded;
}

Status check_weights(const std::string& folder, const Network& network, WeightProof proof) {
  STAGECOACH_ASSIGN_OR_RETURN(WeightFolder weights, WeightFolder::open(folder));
  return match_weights(weights, network, proof).status();
}

}  // namespace stagecoach
