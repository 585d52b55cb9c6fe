#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/mapped_file.h"
#include "core/status.h"
#include "model/weight_transfer.h"
#include "scheduler/network.h"

namespace stagecoach {

/// Bytes of a mapped file that are bytes of a block's compute copy, as they are.
struct MappedWeightPart {
  int block = 0;
  ByteCount offset = 0;  ///< byte of the block
  std::span<const std::byte> memory;
};

/// The weights of a folder for blocks that are mapped: no copy of them is made. Opens files and
/// reads headers only. Thread rule: any thread once opened.
class MappedWeights {
 public:
  /// All of them that `network` has as `is_mapped`. Errors: those of `match_weights`;
  /// unimplemented, naming the tensor, for one that is packed or of another type than the
  /// network's, which would have to be converted.
  static Result<std::shared_ptr<const MappedWeights>> open(
      const std::string& folder, const Network& network,
      WeightProof proof = WeightProof::kTiedHeads);

  const std::vector<MappedWeightPart>& parts() const { return parts_; }
  ByteCount bytes() const;
  /// Data loss, naming the file, when one was changed since.
  Status check_unchanged() const;

 private:
  MappedWeights() = default;
  std::vector<MappedFile> files_;
  std::vector<MappedWeightPart> parts_;
};

/// Marks all frozen weights of `network` as mapped.
void map_frozen_blocks(Network& network);

}  // namespace stagecoach
