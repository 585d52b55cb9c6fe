#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "model/safetensors.h"

namespace stagecoach {

/// Files of a folder that hold its weights: one, or an index of several.
inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kWeightsIndexFile = "model.safetensors.index.json";

/// A tensor of a folder and the file it is in; both belong to the folder.
struct FolderTensor {
  const SafetensorsFile* file;
  const SafetensorInfo* info;
};

/// Reads the text of an index: file by tensor name, by name. Refused: text that is not JSON, a key
/// that appears twice, a weight_map that is missing, empty or no table of names, files outside the
/// folder. `path` names the index in errors, which are data loss.
Result<std::vector<std::pair<std::string, std::string>>> parse_weights_index(
    std::string_view text, const std::string& path);

/// The weights of a Hugging Face folder, open for reading: model.safetensors, or the files that
/// model.safetensors.index.json names. Only headers are read.
/// Thread rule: any thread once opened.
class WeightFolder {
 public:
  /// Index and headers must agree in every name. Errors: those of `parse_weights_index` and
  /// `SafetensorsFile::open`; data loss, naming all of them, for files that the index names and
  /// that are not there, and naming both files for a tensor that is not where the index says;
  /// invalid argument when a folder has both forms; not found when it has none.
  static Result<WeightFolder> open(const std::string& folder);

  /// The file that speaks for all: the index, or the only one.
  const std::string& path() const { return path_; }
  /// All tensors, by name.
  const std::vector<FolderTensor>& tensors() const { return tensors_; }
  /// The tensor called `name`, or null.
  const FolderTensor* find(std::string_view name) const;

 private:
  WeightFolder() = default;
  Status open_shards(const std::string& folder);
  void collect_tensors();

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::vector<FolderTensor> tensors_;
};

/// How a folder of weights is written.
struct WeightFolderOptions {
  /// A file takes no more tensors once it would hold more than this; as Hugging Face has it.
  ByteCount max_file_bytes = 5'000'000'000;
};

/// Writes weights as `WeightFolder` and Hugging Face's tools read them: one file, or, past the
/// size of one, model-00001-of-00002.safetensors, … in order of name, and the index. Returns the
/// names of the files. Each file is safe in a crash, all together are not: the caller writes into
/// a folder that it renames. Errors: those of `write_safetensors`.
Result<std::vector<std::string>> write_weight_folder(const std::string& folder,
                                                     std::vector<SafetensorsTensor> tensors,
                                                     const WeightFolderOptions& options = {});

}  // namespace stagecoach
