// Faults between the stream of a change and the vote. Each must abort the change, and the members
// of the old world go on as if nothing had happened.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reconfig/base/check.h"
#include "reconfig/state/plan/layout_file.h"
#include "tests/unit/elastic/participant/layout_member.h"

namespace rewire::elastic {
namespace {

enum Tensor : uint32_t { kWeight, kBias, kMoment, kStep, kRandom, kCursor, kTensors };

// A job that trains on one slot without tensor parallelism, and on two with it.
LayoutJob TensorParallelJob() {
  LayoutJob job;
  const auto add = [&](const char* name, std::vector<uint64_t> shape, uint32_t element_bytes,
                       bool split, state::Change change) {
    state::LogicalTensor t;
    t.name = name;
    t.shape = std::move(shape);
    t.element_bytes = element_bytes;
    t.split.dim = split ? 1 : -1;
    t.change = change;
    job.tensors.push_back(t);
  };
  add("weight", {8, 16}, 4, true, state::Change::kConstant);
  add("bias", {8, 16}, 4, true, state::Change::kConstant);
  add("moment", {8, 16}, 4, true, state::Change::kConstant);
  add("step", {1}, 8, false, state::Change::kVolatile);
  add("random", {64}, 1, false, state::Change::kVolatile);
  add("cursor", {2}, 8, false, state::Change::kVolatile);
  for (const uint32_t degree : {1, 2}) {
    state::Parallel parallel;
    parallel.tensor = degree;
    const auto layout = state::ParallelLayout::Make(parallel, {}, job.tensors);
    REWIRE_CHECK(layout.ok());
    nlohmann::ordered_json json = ToJson(state::LayoutFile{*layout, {}});
    json.erase("members");
    job.texts.push_back(json.dump());
  }
  return job;
}

// Changes the bytes of one tensor after their hash was compared, and before they are placed.
class TamperingTransport final : public state::Transport, public state::FragmentSink {
 public:
  using Tamper = std::function<void(std::vector<char>* bytes)>;
  TamperingTransport(state::Transport* real, uint32_t tensor, Tamper tamper)
      : real_(real), tensor_(tensor), tamper_(std::move(tamper)) {}

  [[nodiscard]] std::string address() const override { return real_->address(); }
  void Open(const state::StreamKey& key, std::vector<WorldMember> senders,
            state::FragmentSink* sink) override {
    sink_ = sink;
    real_->Open(key, std::move(senders), this);
  }
  void Close(const state::StreamKey& key) override { real_->Close(key); }
  void Send(const state::StreamKey& key, const WorldMember& to, state::OutFragment fragment,
            std::function<void(absl::Status)> done) override {
    real_->Send(key, to, fragment, std::move(done));
  }
  void AnswerNames(const Key& key, Lookup lookup) override {
    real_->AnswerNames(key, std::move(lookup));
  }
  [[nodiscard]] state::TransportCounters counters() const override { return real_->counters(); }

  absl::Status Take(MemberId sender, const state::FragmentHeader& header,
                    std::span<const char> bytes) override {
    std::vector<char> changed(bytes.begin(), bytes.end());
    if (header.tensor == tensor_) tamper_(&changed);
    return sink_->Take(sender, header, changed);
  }
  void Corrupted(MemberId sender, const state::FragmentHeader& header) override {
    sink_->Corrupted(sender, header);
  }

 private:
  state::Transport* const real_;
  state::FragmentSink* sink_ = nullptr;
  const uint32_t tensor_;
  const Tamper tamper_;
};

// Member 0 is alone, and member 1 joins it.
class InjectedFaultsTest : public ::testing::Test {
 protected:
  InjectedFaultsTest() : job_(TensorParallelJob()) {
    members_.push_back(std::make_unique<LayoutMember>(0, &job_, 1, 0, false));
    members_.push_back(std::make_unique<LayoutMember>(1, &job_, 2, 1, true));
    from_ = {2, {old().address()}};
    to_ = {3, {old().address(), joiner().address()}};
  }
  ~InjectedFaultsTest() override { Abort(); }
  LayoutMember& old() { return *members_[0]; }
  LayoutMember& joiner() { return *members_[1]; }
  // Prepares the change. Returns the failure of a plan, or of the comparison of plans.
  absl::Status Prepare(const World& of_joiner) {
    old().Begin({3, TransitionKind::kBoundary, from_, to_, kSecret});
    joiner().Begin({3, TransitionKind::kBoundary, from_, of_joiner, kSecret});
    const absl::StatusOr<uint64_t> hash = old().Planned();
    const absl::StatusOr<uint64_t> other = joiner().Planned();
    if (!hash.ok() || !other.ok()) return hash.ok() ? other.status() : hash.status();
    return *hash == *other ? absl::OkStatus() : absl::AbortedError("plans differ");
  }
  // Streams the state. A member whose peer has failed waits for the leader, which would abort.
  void Stream(const std::function<void()>& before_finish = [] {}) {
    ASSERT_TRUE(Prepare(to_).ok());
    for (auto& member : members_) member->reshape()->Start(kVersion);
    before_finish();
    for (auto& member : members_) member->reshape()->Finish();
  }
  void Abort() {
    for (auto& member : members_) member->EndReshape();
  }
  // Changes what the joiner gets of this tensor. `named`: the tensor whose content is then wrong.
  void ExpectAborted(uint32_t tensor, TamperingTransport::Tamper tamper, const std::string& named) {
    TamperingTransport transport(joiner().transport(), tensor, std::move(tamper));
    joiner().Use(&transport);
    Stream();
    const absl::Status status = joiner().Streamed();
    Abort();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_NE(status.message().find(named), std::string::npos) << status;
    old().Check(false, 0);
  }

  LayoutJob job_;
  std::vector<std::unique_ptr<LayoutMember>> members_;
  World from_, to_;
};

TEST_F(InjectedFaultsTest, WithoutAFaultTheChangeIsRight) {
  Stream();
  EXPECT_TRUE(old().Streamed().ok());
  EXPECT_TRUE(joiner().Streamed().ok());
  old().Adopt(0);
  joiner().Adopt(1);
  old().Check(false, 0);
  joiner().Check(false, 0);
}

void Zero(std::vector<char>* bytes) { std::fill(bytes->begin(), bytes->end(), 0); }

TEST_F(InjectedFaultsTest, AParameterThatWasNotLoaded) { ExpectAborted(kWeight, Zero, "weight"); }
TEST_F(InjectedFaultsTest, AStepThatBeginsAgain) { ExpectAborted(kStep, Zero, "step"); }
TEST_F(InjectedFaultsTest, ProgressThatBeginsAgain) { ExpectAborted(kCursor, Zero, "cursor"); }
TEST_F(InjectedFaultsTest, ALostRandomStream) { ExpectAborted(kRandom, Zero, "random"); }

TEST_F(InjectedFaultsTest, ACorruptedValue) {
  ExpectAborted(
      kWeight, [](auto* bytes) { (*bytes)[13] ^= 1; }, "weight");
}

TEST_F(InjectedFaultsTest, PermutedValues) {
  ExpectAborted(
      kWeight, [](auto* bytes) { std::swap((*bytes)[3], (*bytes)[7]); }, "weight");
}

TEST_F(InjectedFaultsTest, ALowerPrecision) {
  const auto round = [](std::vector<char>* bytes) {
    for (size_t at = 0; at < bytes->size(); at += 4) std::memset(bytes->data() + at, 0, 2);
  };
  ExpectAborted(kWeight, round, "weight");
}

TEST_F(InjectedFaultsTest, AParameterInThePlaceOfAnother) {
  const auto overwrite = [&](std::vector<char>* bytes) {
    std::copy(bytes->begin(), bytes->end(), joiner().Target(kWeight));
  };
  ExpectAborted(kBias, overwrite, "weight");
}

TEST_F(InjectedFaultsTest, AStaleMoment) {
  const auto replace = [&](std::vector<char>* bytes) {
    ForEachByte(*joiner().program().layout, kMoment, 1, [&](uint64_t byte, uint64_t place) {
      (*bytes)[place] = ByteOf(kMoment, byte, kVersion - 1);
    });
  };
  ExpectAborted(kMoment, replace, "moment");
}

TEST_F(InjectedFaultsTest, ADroppedName) {
  joiner().program().tensors.erase(joiner().program().tensors.begin() + kBias);
  const absl::Status status = Prepare(to_);
  EXPECT_NE(status.message().find("bias"), std::string::npos) << status;
  old().Check(false, 0);
}

// The order of the slots is the order of the ranks, and so of the sums.
TEST_F(InjectedFaultsTest, AnotherOrderOfReduction) {
  const World swapped{3, {joiner().address(), old().address()}};
  EXPECT_EQ(Prepare(swapped).message(), "plans differ");
  old().Check(false, 0);
}

TEST_F(InjectedFaultsTest, ASourceThatIsModifiedAfterItWasSent) {
  char* const source = old().program().tensors[kWeight].place.data;
  const uint64_t last = 8 * 16 * 4 - 1;  // goes to the joiner
  std::promise<void> arrived;
  TamperingTransport transport(joiner().transport(), kMoment, [&](auto*) { arrived.set_value(); });
  joiner().Use(&transport);
  Stream([&] {
    arrived.get_future().wait();
    source[last] ^= 1;
  });
  const absl::Status status = old().Streamed();
  Abort();
  EXPECT_NE(status.message().find("weight changed outside the update"), std::string::npos)
      << status;
  source[last] ^= 1;
  old().Check(false, 0);
}

}  // namespace
}  // namespace rewire::elastic
