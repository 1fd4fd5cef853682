// Members of a job with layouts for tests of Reshape: each has its own transport over sockets and
// its own memory, all in one process, and the test takes the leader's decisions. Owned by the
// test's thread.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reconfig/elastic/participant/reshape.h"
#include "reconfig/state/plan/needs.h"
#include "reconfig/state/snapshot/snapshotter.h"
#include "reconfig/state/stream/tcp_transport.h"

namespace rewire::elastic {

constexpr uint64_t kVersion = 7;
constexpr Key kSecret = {{7}};

// The tensors of one job, and its layouts as text by their number of slots, from 1.
struct LayoutJob {
  static const char* Text(void* job, uint32_t slots) {
    const auto& texts = static_cast<LayoutJob*>(job)->texts;
    return slots == 0 || slots > texts.size() ? nullptr : texts[slots - 1].c_str();
  }
  std::vector<state::LogicalTensor> tensors;
  std::vector<std::string> texts;
};

// Returns byte `byte` of the tensor, numbered in the whole tensor.
inline char ByteOf(size_t tensor, uint64_t byte, uint64_t version) {
  const uint64_t mixed = (tensor + 1) * 1000003 + byte * 2654435761 + version * 40503;
  return static_cast<char>(mixed ^ mixed >> 23);
}

// Calls visit(byte, place) for each byte of state in a slot's memory: its number in the whole
// tensor, and its offset in the memory.
template <typename Visit>
void ForEachByte(const state::ParallelLayout& layout, size_t tensor, uint32_t slot,
                 const Visit& visit) {
  const state::LogicalTensor& t = layout.tensors()[tensor];
  for (const state::Piece& piece : layout.PiecesOf(tensor, slot)) {
    std::array<uint64_t, state::kMaxDims> at = piece.chunk.begin;
    for (uint64_t left = piece.chunk.elements(); left > 0; --left) {
      uint64_t element = 0;
      uint64_t place = piece.offset;
      for (size_t d = 0; d < piece.chunk.dims; ++d) {
        element = element * t.shape[d] + at[d];
        place += (at[d] - piece.chunk.begin[d]) * piece.strides[d];
      }
      for (uint64_t b = 0; b < t.element_bytes; ++b) {
        visit(element * t.element_bytes + b, place * t.element_bytes + b);
      }
      for (size_t d = piece.chunk.dims; d-- > 0;) {
        if (++at[d] < piece.chunk.end[d]) break;
        at[d] = piece.chunk.begin[d];
      }
    }
  }
}

class LayoutMember {
 public:
  // Registers this member's parts in a world of `slots` slots, with the state of kVersion unless
  // the member joins.
  LayoutMember(MemberId id, LayoutJob* job, uint32_t slots, uint32_t slot, bool joins) : id_(id) {
    state::TcpOptions options;
    options.member = id;
    options.incarnation = 1;
    transport_ = *state::TcpTransport::Start(options);
    snapshotter_ = std::make_unique<state::Snapshotter>(transport_.get(), &budget_,
                                                        state::Snapshotter::Options{});
    program_.callbacks.arg = this;
    program_.callbacks.allocate = [](void* arg, const char* name, uint64_t bytes) -> void* {
      auto* const member = static_cast<LayoutMember*>(arg);
      return member->allocated_[name] = member->memory_.emplace_back(bytes, 'x').data();
    };
    job_ = job;
    program_.callbacks.layout = [](void* member, uint32_t n) {
      return LayoutJob::Text(static_cast<LayoutMember*>(member)->job_, n);
    };
    program_.joining = joins;
    program_.slot = slot;
    for (const state::LogicalTensor& t : job->tensors) {
      state::PlacedTensor placed;
      placed.shape = {t.name, state::Chunk::Whole(t.shape).elements(), t.element_bytes,
                      state::Division::kByLayout, t.change};
      program_.tensors.push_back(placed);
    }
    program_.layout = LayoutOf(program_, slots).value();
    for (uint32_t t = 0; t < program_.tensors.size(); ++t) {
      state::PlacedTensor& placed = program_.tensors[t];
      placed.part = {0, program_.layout->ElementsOf(t, slot)};
      placed.place.data =
          memory_.emplace_back(placed.part.size() * placed.shape.element_bytes + 1, 'x').data();
      if (joins) continue;
      ForEachByte(*program_.layout, t, slot, [&](uint64_t byte, uint64_t place) {
        placed.place.data[place] = ByteOf(t, byte, kVersion);
      });
    }
  }
  ~LayoutMember() {
    EndReshape();
    snapshotter_.reset();
  }
  LayoutMember(const LayoutMember&) = delete;
  LayoutMember& operator=(const LayoutMember&) = delete;

  [[nodiscard]] WorldMember address() const { return {id_, 1, transport_->address()}; }
  [[nodiscard]] const ProgramState& program() const { return program_; }
  [[nodiscard]] ProgramState& program() { return program_; }
  [[nodiscard]] state::Transport* transport() { return transport_.get(); }
  // The next change uses this transport in place of the member's own.
  void Use(state::Transport* transport) { used_ = transport; }
  // Returns the memory of the tensor in the world that this member enters.
  [[nodiscard]] char* Target(uint32_t tensor) {
    const auto found = allocated_.find(program_.tensors[tensor].shape.name);
    return found != allocated_.end() ? found->second : program_.tensors[tensor].place.data;
  }

  void StartCopies(const World& world) {
    snapshotter_->StartWorld(world, kSecret, program_.slot, *program_.layout, program_.tensors);
    ASSERT_TRUE(snapshotter_->BeginVersion(kVersion).ok());
  }
  void AwaitCopies() { ASSERT_TRUE(snapshotter_->WaitTaken(Now() + seconds(30))); }

  void Begin(MakePlan plan) {
    planned_ = std::promise<absl::StatusOr<uint64_t>>();
    streamed_ = std::promise<absl::Status>();
    ReshapeContext context;
    context.self = id_;
    context.wait_state = [this](Time) { return program_; };
    context.transport = used_ != nullptr ? used_ : transport_.get();
    context.budget = &budget_;
    context.snapshots = snapshotter_.get();
    context.check_shapes = [] { return absl::OkStatus(); };
    context.peer_copy = false;
    context.boundary = context.build = seconds(20);
    context.publish_offer = [](const std::string&) {};
    context.ask_offer = [](const WorldMember&) { return std::string(); };
    context.wait_version = [](uint64_t, Time) { return true; };
    context.mint_groups = [] { return absl::OkStatus(); };
    context.planned = [this](absl::StatusOr<uint64_t> hash) {
      planned_.set_value(std::move(hash));
    };
    context.streamed = [this](absl::Status status, uint64_t, uint64_t) {
      streamed_.set_value(std::move(status));
    };
    reshape_ = std::make_unique<Reshape>(std::move(context), std::move(plan));
  }
  absl::StatusOr<uint64_t> Planned() { return planned_.get_future().get(); }
  absl::Status Streamed() { return streamed_.get_future().get(); }
  Reshape* reshape() { return reshape_.get(); }
  void EndReshape() { reshape_.reset(); }

  // Takes the new parts of a committed change.
  void Adopt(uint32_t slot) {
    reshape_->End();
    for (const NewPart& part : reshape_->parts()) {
      program_.tensors[part.tensor].part = part.box;
      program_.tensors[part.tensor].place = part.place;
    }
    program_.layout = reshape_->next_layout();
    program_.slot = slot;
    program_.joining = false;
    reshape_.reset();
  }

  AtBoundary Report() {
    snapshotter_->Freeze();
    std::vector<uint32_t> changing;
    for (uint32_t t = 0; t < program_.tensors.size(); ++t) {
      if (program_.tensors[t].shape.change == state::Change::kVolatile) changing.push_back(t);
    }
    AtBoundary report;
    report.live_version = kVersion;
    report.live_whole = snapshotter_->own().HasWhole(kVersion, changing);
    report.own_snapshots = snapshotter_->OwnVersions();
    report.buddy_snapshots = snapshotter_->BuddyVersions();
    report.needs = NeedsOf(*program_.layout);
    return report;
  }

  // Expects the state of kVersion. restored: transient tensors have nothing then.
  void Check(bool restored, uint64_t seed) const {
    for (uint32_t t = 0; t < program_.tensors.size(); ++t) {
      const state::PlacedTensor& placed = program_.tensors[t];
      if (restored && placed.shape.change == state::Change::kTransient) continue;
      uint64_t wrong = 0;
      ForEachByte(*program_.layout, t, program_.slot, [&](uint64_t byte, uint64_t place) {
        wrong += placed.place.data[place] == ByteOf(t, byte, kVersion) ? 0 : 1;
      });
      EXPECT_EQ(wrong, 0u) << "seed " << seed << " member " << id_ << " tensor " << t;
    }
  }

 private:
  const MemberId id_;
  LayoutJob* job_ = nullptr;
  std::list<std::vector<char>> memory_;
  std::map<std::string, char*> allocated_;  // by the callback
  ProgramState program_;
  state::Budget budget_{uint64_t{64} << 20};
  std::unique_ptr<state::TcpTransport> transport_;
  state::Transport* used_ = nullptr;
  std::unique_ptr<state::Snapshotter> snapshotter_;
  std::promise<absl::StatusOr<uint64_t>> planned_;
  std::promise<absl::Status> streamed_;
  std::unique_ptr<Reshape> reshape_;
};

}  // namespace rewire::elastic
