#include "scheduler/schedules/two_way_order.h"

#include <deque>

namespace stagecoach {

namespace {

/// Writes the eight phases; way 0 is the one whose micro-batches reach this rank first.
class TwoWayWriter {
 public:
  explicit TwoWayWriter(const TwoWayRank& rank) : rank_(rank) {}

  std::vector<StageWork> write() {
    int before_middle = rank_.ranks - rank_.depth - 1;
    repeat(2 * before_middle, [&](int) { forward(0); });
    repeat(rank_.depth + 1, [&](int) { forward(0), forward(1); });
    repeat(before_middle, [&](int) { input(1), weight(), forward(1); });
    repeat(rank_.per_way - 2 * rank_.ranks + rank_.depth + 1, [&](int step) {
      // In the middle the first gradient comes from the forward it would overlap with.
      if (step == 0 && before_middle == 0) {
        forward(0), backward(1);
      } else {
        overlapped(0, 1);
      }
      overlapped(1, 0);
    });
    repeat(before_middle, [&](int) { backward(1), overlapped(1, 0); });
    write_split_backwards();
    repeat(before_middle, [&](int) { weight(), input(0); });
    repeat(rank_.depth + 1, [&](int) { weight(); });
    return std::move(work_);
  }

 private:
  /// Whole backwards of both ways in turn; from the middle of the phase on only their input halves,
  /// so that gradients reach the other ranks sooner.
  void write_split_backwards() {
    int count = rank_.depth + 1;
    bool split = false;
    for (int step = 0; step < count; ++step) {
      if (step == count / 2 && count % 2 == 0) split = true;
      split ? input(1) : backward(1);
      if (step == count / 2 && count % 2 == 1) split = true;
      split ? input(0) : backward(0);
    }
  }

  template <typename Step>
  static void repeat(int count, Step step) {
    for (int i = 0; i < count; ++i) step(i);
  }

  void emit(ActionKind kind, int way, int index, bool with_next = false) {
    work_.push_back({kind, rank_.stage[way], rank_.first_micro_batch[way] + index, with_next});
  }
  void forward(int way) { emit(ActionKind::kForward, way, forwards_[way]++); }
  void backward(int way) { emit(ActionKind::kBackward, way, backwards_[way]++); }
  void overlapped(int forward_way, int backward_way) {
    emit(ActionKind::kForward, forward_way, forwards_[forward_way]++, true);
    backward(backward_way);
  }
  void input(int way) {
    open_.push_back({way, backwards_[way]});
    emit(ActionKind::kInputGradient, way, backwards_[way]++);
  }
  void weight() {
    emit(ActionKind::kWeightGradient, open_.front().way, open_.front().index);
    open_.pop_front();
  }

  struct Open {
    int way = 0;
    int index = 0;
  };
  const TwoWayRank& rank_;
  int forwards_[2] = {}, backwards_[2] = {};
  std::deque<Open> open_;  ///< weight gradients put off
  std::vector<StageWork> work_;
};

}  // namespace

std::vector<StageWork> two_way_order(const TwoWayRank& rank) {
  return TwoWayWriter(rank).write();
}

}  // namespace stagecoach
