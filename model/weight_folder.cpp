#include "model/weight_folder.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <map>

#include "core/json.h"

namespace stagecoach {

namespace {

namespace fs = std::filesystem;

using IndexEntries = std::vector<std::pair<std::string, std::string>>;

bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

/// Names of the files an index names that are not in `folder`, each with what it would hold.
std::vector<std::string> absent_files(
    const std::string& folder, const std::map<std::string, std::vector<std::string>>& names) {
  std::vector<std::string> absent;
  for (const auto& [file, tensors] : names) {
    std::string path = folder + "/" + file;
    if (is_there(path)) continue;
    std::error_code ignored;
    bool dangles = fs::is_symlink(fs::symlink_status(path, ignored));
    absent.push_back(fmt::format("'{}' ({}{} tensors, '{}' the first)", file,
                                 dangles ? "a link that leads nowhere, " : "", tensors.size(),
                                 tensors.front()));
  }
  return absent;
}

}  // namespace

Result<IndexEntries> parse_weights_index(std::string_view text, const std::string& path) {
  auto corrupt = [&path](std::string_view what) {
    return data_loss(fmt::format("'{}': {}", path, what));
  };
  Result<Json> json = Json::parse(text);
  if (!json.is_ok()) return corrupt(json.status().message());
  const Json* map = json->find("weight_map");
  if (map == nullptr) return corrupt("weight_map is missing: not an index of safetensors files");
  if (!map->is_object()) {
    return corrupt(fmt::format("weight_map is a {}, expected a table of tensor and file names",
                               map->type_name()));
  }
  if (map->members().empty()) return corrupt("weight_map is empty: it names no tensor");
  IndexEntries entries;
  for (const auto& [tensor, file] : map->members()) {
    if (!file.is_string()) {
      return corrupt(
          fmt::format("weight_map '{}' is {}, expected a file name", tensor, file.dump()));
    }
    if (!is_plain_file_name(file.as_string())) {
      return corrupt(fmt::format("weight_map '{}' is {}, expected the name of a file in the folder",
                                 tensor, file.dump()));
    }
    entries.emplace_back(tensor, file.as_string());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

Result<WeightFolder> WeightFolder::open(const std::string& folder) {
  std::string single = folder + "/" + kWeightsFile;
  std::string index = folder + "/" + kWeightsIndexFile;
  WeightFolder opened;
  if (is_there(index)) {
    opened.path_ = index;
    STAGECOACH_RETURN_IF_ERROR(opened.open_shards(folder));
    bool uses_single =
        std::any_of(opened.files_.begin(), opened.files_.end(),
                    [&](const SafetensorsFile& file) { return file.path() == single; });
    if (is_there(single) && !uses_single) {
      return invalid_argument(
          fmt::format("'{}' has {} and an index of other files, {}: two sets of weights; remove "
                      "the one that is out of date",
                      folder, kWeightsFile, kWeightsIndexFile));
    }
    return opened;
  }
  opened.path_ = single;
  STAGECOACH_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(single));
  opened.files_.push_back(std::move(file));
  opened.collect_tensors();
  return opened;
}

Status WeightFolder::open_shards(const std::string& folder) {
  STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(path_));
  STAGECOACH_ASSIGN_OR_RETURN(IndexEntries entries, parse_weights_index(text, path_));
  std::map<std::string, std::vector<std::string>> names;
  for (const auto& [tensor, file] : entries) names[file].push_back(tensor);
  if (std::vector<std::string> absent = absent_files(folder, names); !absent.empty()) {
    return data_loss(
        fmt::format("'{}': {} of {} files are not there: {}: incomplete download or "
                    "copy; fetch them",
                    path_, absent.size(), names.size(), fmt::join(absent, ", ")));
  }
  for (const auto& [name, unused] : names) {
    STAGECOACH_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(folder + "/" + name));
    files_.push_back(std::move(file));
  }
  collect_tensors();
  for (size_t i = 1; i < tensors_.size(); ++i) {
    const FolderTensor& tensor = tensors_[i];
    if (tensor.info->name != tensors_[i - 1].info->name) continue;
    return data_loss(fmt::format("'{}': tensor '{}' is both in '{}' and in '{}'", path_,
                                 tensor.info->name, tensors_[i - 1].file->path(),
                                 tensor.file->path()));
  }
  for (const auto& [tensor, file] : entries) {
    const FolderTensor* found = find(tensor);
    std::string expected = folder + "/" + file;
    if (found != nullptr && found->file->path() == expected) continue;
    return data_loss(
        fmt::format("'{}': tensor '{}' should be in '{}', whose header does not name "
                    "it; {}",
                    path_, tensor, file,
                    found == nullptr ? "nor does that of any other file"
                                     : "it is in '" + found->file->path() + "'"));
  }
  for (const FolderTensor& tensor : tensors_) {
    auto entry = std::lower_bound(entries.begin(), entries.end(), tensor.info->name,
                                  [](const auto& a, const std::string& b) { return a.first < b; });
    if (entry != entries.end() && entry->first == tensor.info->name) continue;
    return data_loss(fmt::format("'{}': tensor '{}' of '{}' is not in the weight_map", path_,
                                 tensor.info->name, tensor.file->path()));
  }
  return Status::ok();
}

void WeightFolder::collect_tensors() {
  for (const SafetensorsFile& file : files_) {
    for (const SafetensorInfo& info : file.header().tensors) tensors_.push_back({&file, &info});
  }
  std::stable_sort(
      tensors_.begin(), tensors_.end(),
      [](const FolderTensor& a, const FolderTensor& b) { return a.info->name < b.info->name; });
}

const FolderTensor* WeightFolder::find(std::string_view name) const {
  auto found = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                [](const FolderTensor& tensor, std::string_view wanted) {
                                  return tensor.info->name < wanted;
                                });
  return found != tensors_.end() && found->info->name == name ? &*found : nullptr;
}

Result<std::vector<std::string>> write_weight_folder(const std::string& folder,
                                                     std::vector<SafetensorsTensor> tensors,
                                                     const WeightFolderOptions& options) {
  std::sort(tensors.begin(), tensors.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) { return a.name < b.name; });
  std::vector<std::vector<SafetensorsTensor>> files(1);
  ByteCount file_bytes = 0;
  ByteCount total_bytes = 0;
  for (SafetensorsTensor& tensor : tensors) {
    ByteCount size = tensor.size_bytes();
    if (!files.back().empty() && file_bytes + size > options.max_file_bytes) {
      files.emplace_back();
      file_bytes = 0;
    }
    file_bytes += size;
    total_bytes += size;
    files.back().push_back(std::move(tensor));
  }
  if (files.size() == 1) {
    STAGECOACH_RETURN_IF_ERROR(
        write_safetensors(folder + "/" + kWeightsFile, std::move(files.front())));
    return std::vector<std::string>{kWeightsFile};
  }
  std::vector<std::string> names;
  Json::Object map;
  for (std::vector<SafetensorsTensor>& file : files) {
    names.push_back(
        fmt::format("model-{:05}-of-{:05}.safetensors", names.size() + 1, files.size()));
    for (const SafetensorsTensor& tensor : file) map.emplace_back(tensor.name, Json(names.back()));
    STAGECOACH_RETURN_IF_ERROR(write_safetensors(folder + "/" + names.back(), std::move(file)));
  }
  Json index = Json::object();
  index["metadata"]["total_size"] = total_bytes;
  index["weight_map"] = Json(std::move(map));
  STAGECOACH_RETURN_IF_ERROR(
      write_file_atomically(folder + "/" + kWeightsIndexFile, index.dump(true) + "\n"));
  names.emplace_back(kWeightsIndexFile);
  return names;
}

}  // namespace stagecoach
