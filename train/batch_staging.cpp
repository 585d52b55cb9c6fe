#include "train/batch_staging.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include "hal/host_access.h"
#include "train/labels.h"

namespace stagecoach {

namespace {

float element_as_float(const std::byte* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kBF16:
      return to_float(reinterpret_cast<const BFloat16*>(data)[index]);
    case DType::kF16:
      return to_float(reinterpret_cast<const Float16*>(data)[index]);
    default:
      return reinterpret_cast<const float*>(data)[index];
  }
}

/// Copies `count` elements, rounding fp32 into a 16-bit target where the network asks for it.
void convert_into(const std::byte* source, DType source_dtype, std::byte* target,
                  DType target_dtype, int64_t count) {
  if (source_dtype == target_dtype) {
    std::memcpy(target, source, static_cast<size_t>(count * dtype_size_bytes(source_dtype)));
    return;
  }
  const float* values = reinterpret_cast<const float*>(source);
  for (int64_t i = 0; i < count; ++i) {
    if (target_dtype == DType::kBF16) {
      reinterpret_cast<BFloat16*>(target)[i] = to_bfloat16(values[i]);
    } else {
      reinterpret_cast<Float16*>(target)[i] = to_float16(values[i]);
    }
  }
}

bool convertible(DType source, DType target) {
  return source == target ||
         (source == DType::kF32 && (target == DType::kBF16 || target == DType::kF16));
}

}  // namespace

ByteCount BatchStaging::bytes(const Network& network, const MicroBatchShape& shape,
                              int micro_batches) {
  ByteCount each = Arena::padded(network.layers.front()->input().size_bytes(shape)) +
                   Arena::padded(network.layers.back()->output().size_bytes(shape)) +
                   network.report_bytes(shape);
  for (RowInput rows : kRowInputs) {
    each += Arena::padded(network.row_input(rows).size_bytes(shape));
  }
  return each * micro_batches;
}

Result<std::unique_ptr<BatchStaging>> BatchStaging::create(Device& pinning_device,
                                                           const Network& network,
                                                           const MicroBatchShape& shape,
                                                           int micro_batches) {
  std::unique_ptr<BatchStaging> staging(new BatchStaging);
  staging->shape_ = shape;
  staging->micro_batches_ = micro_batches;
  staging->input_ = network.layers.front()->input();
  staging->label_ = network.label;
  staging->output_ = network.layers.back()->output();
  STAGECOACH_ASSIGN_OR_RETURN(
      staging->arena_,
      Arena::create_pinned(pinning_device, bytes(network, shape, micro_batches), "batch"));
  for (size_t layer = 0; layer < network.layers.size(); ++layer) {
    if (network.layers[layer]->report_bytes(shape) == 0) continue;
    staging->report_offsets_.push_back(network.report_bytes(shape, static_cast<int>(layer)));
  }
  for (int m = 0; m < micro_batches; ++m) {
    if (ByteCount size = network.report_bytes(shape); size > 0) {
      staging->reports_.push_back(staging->arena_->take(size));
    }
    staging->inputs_.push_back(staging->arena_->take(staging->input_.size_bytes(shape)));
    staging->outputs_.push_back(staging->arena_->take(staging->output_.size_bytes(shape)));
    for (RowInput rows : kRowInputs) {
      BoundaryInfo info = network.row_input(rows);
      if (info.columns == 0) continue;
      staging->rows_[rows].push_back(staging->arena_->take(info.size_bytes(shape)));
    }
  }
  return staging;
}

Status BatchStaging::check(const HostTensor& source, const BoundaryInfo& info, const char* what,
                           bool allow_short) const {
  int64_t sequences = source.shape[0];
  int64_t per_sequence = shape_.sequence * info.columns;
  if (source.data == nullptr || sequences < 1 || sequences > batch() ||
      (!allow_short && sequences != batch()) ||
      source.shape.element_count() != sequences * per_sequence) {
    return invalid_argument(
        fmt::format("{} hold {} elements in {} sequences; expected {} sequences of {} elements",
                    what, source.shape.element_count(), sequences, batch(), per_sequence));
  }
  if (!convertible(source.dtype, info.dtype)) {
    return invalid_argument(fmt::format("{} are {}; this network takes {}", what,
                                        dtype_name(source.dtype), dtype_name(info.dtype)));
  }
  return Status::ok();
}

void BatchStaging::copy_in(const HostTensor& source, const BoundaryInfo& info, const char* what,
                           uint32_t filler, std::vector<BufferView>& targets) {
  int64_t per_sequence = shape_.sequence * info.columns;
  const std::byte* bytes = static_cast<const std::byte*>(source.data);
  for (int64_t m = 0; m < micro_batches_; ++m) {
    int64_t first = m * shape_.sequences;
    int64_t here = std::clamp<int64_t>(source.shape[0] - first, 0, shape_.sequences);
    std::byte* target = targets[m].host_data();
    note_host_write(target, targets[m].size, what);
    convert_into(bytes + first * per_sequence * dtype_size_bytes(source.dtype), source.dtype,
                 target, info.dtype, here * per_sequence);
    // A short batch is filled up with 32-bit fillers: token 0, or a label that is ignored.
    ByteCount used = here * per_sequence * dtype_size_bytes(info.dtype);
    for (ByteCount offset = used; offset + 4 <= targets[m].size; offset += 4) {
      std::memcpy(target + offset, &filler, 4);
    }
  }
}

Result<int64_t> BatchStaging::count_targets(const HostTensor& inputs, const HostTensor& labels,
                                            bool allow_short) const {
  if (label_.columns == 0) return failed_precondition("this network ends without a loss");
  bool integer_labels = label_.dtype == DType::kI32;
  bool may_be_short = allow_short && integer_labels;
  STAGECOACH_RETURN_IF_ERROR(check(inputs, input_, "inputs", may_be_short));
  STAGECOACH_RETURN_IF_ERROR(check(labels, label_, "labels", may_be_short));
  if (inputs.shape[0] != labels.shape[0]) {
    return invalid_argument(
        fmt::format("{} sequences of inputs but {} of labels", inputs.shape[0], labels.shape[0]));
  }
  if (!integer_labels) return batch() * shape_.sequence;
  int64_t targets = 0;
  const int32_t* values = static_cast<const int32_t*>(labels.data);
  int64_t per_sequence = shape_.sequence * label_.columns;
  for (int64_t i = 0; i < labels.shape.element_count(); ++i) {
    if (values[i] >= 0) {
      ++targets;
    } else if (values[i] != kIgnoredLabel && values[i] != kForeignIgnoredLabel) {
      return invalid_argument(fmt::format(
          "the label of sequence {}, position {} is {}; allowed: ids from 0, and {} or {} where "
          "nothing is to be predicted",
          i / per_sequence, i % per_sequence, values[i], kIgnoredLabel, kForeignIgnoredLabel));
    }
  }
  return targets;
}

Status BatchStaging::check_document_starts(const HostTensor& starts, int64_t sequences) const {
  if (starts.data == nullptr) return Status::ok();
  if (rows_[RowInput::kDocumentStarts].empty()) {
    return invalid_argument("this network takes no document starts");
  }
  int64_t count = sequences * shape_.sequence;
  if (starts.dtype != DType::kI32 || starts.shape.element_count() != count) {
    return invalid_argument(
        fmt::format("document starts hold {} elements of {}; expected {} of i32 for {} sequences",
                    starts.shape.element_count(), dtype_name(starts.dtype), count, sequences));
  }
  const int32_t* values = static_cast<const int32_t*>(starts.data);
  for (int64_t i = 0; i < count; ++i) {
    int64_t position = i % shape_.sequence;
    if (values[i] == position || (position > 0 && values[i] == values[i - 1])) continue;
    return invalid_argument(fmt::format(
        "the document start of sequence {}, position {} is {}; allowed: {}{}", i / shape_.sequence,
        position, values[i], position, position > 0 ? fmt::format(" or {}", values[i - 1]) : ""));
  }
  return Status::ok();
}

/// Sequences that are missing, as all of them without `starts`, are one document each.
void BatchStaging::load_documents(const HostTensor& starts) {
  const int32_t* values = static_cast<const int32_t*>(starts.data);
  int64_t given = values == nullptr ? 0 : starts.shape.element_count();
  for (RowInput rows : {RowInput::kDocumentStarts, RowInput::kPositions}) {
    for (size_t m = 0; m < rows_[rows].size(); ++m) {
      const BufferView& view = rows_[rows][m];
      note_host_write(view.host_data(), view.size, row_input_name(rows));
      int32_t* out = reinterpret_cast<int32_t*>(view.host_data());
      int64_t first = static_cast<int64_t>(m) * shape_.rows();
      for (int64_t row = 0; row < shape_.rows(); ++row) {
        int32_t start = first + row < given ? values[first + row] : 0;
        auto position = static_cast<int32_t>(row % shape_.sequence);
        out[row] = rows == RowInput::kDocumentStarts ? start : position - start;
      }
    }
  }
}

void BatchStaging::load(const HostTensor& inputs, const HostTensor& labels,
                        const HostTensor& document_starts) {
  copy_in(inputs, input_, "inputs", 0, inputs_);
  copy_in(labels, label_, "labels", static_cast<uint32_t>(kIgnoredLabel), rows_[RowInput::kLabels]);
  load_documents(document_starts);
  if (label_.dtype != DType::kI32) return;
  // Devices know one ignored label; what the caller owns stays as it is.
  for (const BufferView& label : rows_[RowInput::kLabels]) {
    int32_t* values = reinterpret_cast<int32_t*>(label.host_data());
    std::replace(values, values + shape_.rows() * label_.columns, kForeignIgnoredLabel,
                 kIgnoredLabel);
  }
}

Status BatchStaging::load_inputs(const HostTensor& inputs) {
  STAGECOACH_RETURN_IF_ERROR(check(inputs, input_, "inputs", true));
  for (const BufferView& label : rows_[RowInput::kLabels]) {
    note_host_write(label.host_data(), label.size, "labels");
    std::memset(label.host_data(), 0xff, static_cast<size_t>(label.size));
  }
  copy_in(inputs, input_, "inputs", 0, inputs_);
  load_documents({});
  return Status::ok();
}

void BatchStaging::fill_views(PassInput& pass) const {
  pass.inputs = inputs_;
  pass.rows = rows_;
  pass.losses = outputs_;
  if (!pass.inference) pass.reports = reports_;
}

double BatchStaging::sum_of_losses() const {
  double sum = 0;
  for (const BufferView& output : outputs_) {
    note_host_read(output.host_data(), output.size, "losses");
    const float* rows = reinterpret_cast<const float*>(output.host_data());
    for (int64_t row = 0; row < shape_.rows(); ++row) sum += rows[row];
  }
  return sum;
}

std::optional<double> BatchStaging::mean_of_reports() const {
  if (reports_.empty()) return std::nullopt;
  double sum = 0;
  ByteCount size = shape_.rows() * dtype_size_bytes(DType::kF32);
  for (ByteCount offset : report_offsets_) {
    for (const BufferView& all : reports_) {
      BufferView report = all.slice(offset, size);
      note_host_read(report.host_data(), report.size, "reports");
      const float* rows = reinterpret_cast<const float*>(report.host_data());
      for (int64_t row = 0; row < shape_.rows(); ++row) sum += rows[row];
    }
  }
  return sum / static_cast<double>(report_offsets_.size());
}

std::vector<float> BatchStaging::outputs(int64_t sequences) const {
  int64_t per_sequence = shape_.sequence * output_.columns;
  std::vector<float> values(static_cast<size_t>(sequences * per_sequence));
  for (const BufferView& output : outputs_) {
    note_host_read(output.host_data(), output.size, "outputs");
  }
  for (int64_t s = 0; s < sequences; ++s) {
    const std::byte* data = outputs_[s / shape_.sequences].host_data();
    int64_t first = (s % shape_.sequences) * per_sequence;
    for (int64_t i = 0; i < per_sequence; ++i) {
      values[s * per_sequence + i] = element_as_float(data, output_.dtype, first + i);
    }
  }
  return values;
}

}  // namespace stagecoach
