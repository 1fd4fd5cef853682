// Uses the plugin like NCCL's proxy: a connection in each direction, receives posted ahead, sends
// and receives tested in turn.
#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/net/way.h"
#include "net_plugin/abi/net_types.h"

namespace rewire::bench {
namespace {

using net::NetV11;

absl::Status Failed(const char* call, ncclResult_t result) {
  return absl::UnavailableError(absl::StrCat(call, " gave ", static_cast<int>(result)));
}

#define TRY_NCCL(call, ...)                                                                        \
  do {                                                                                             \
    if (const ncclResult_t r = api_->call(__VA_ARGS__); r != ncclSuccess) return Failed(#call, r); \
  } while (false)

class Plugin final : public Way {
 public:
  Plugin(const Control& control, const NetV11* api, const PluginEnd& end)
      : control_(control), api_(api), end_(end) {}
  ~Plugin() override {
    Forget();
    if (sender_ != nullptr) api_->close_send(sender_);
    if (receiver_ != nullptr) api_->close_recv(receiver_);
    api_->finalize(context_);
  }

  absl::Status Start() {
    const int device = end_.device;
    TRY_NCCL(init, &context_, 1, nullptr, nullptr, nullptr);
    std::array<char, net::kHandleBytes> mine{};
    std::array<char, net::kHandleBytes> theirs{};
    void* listener = nullptr;
    TRY_NCCL(listen, context_, device, mine.data(), &listener);
    control_.Send(mine.data(), mine.size());
    control_.Receive(theirs.data(), theirs.size());
    while (sender_ == nullptr || receiver_ == nullptr) {
      void* handle = nullptr;
      if (sender_ == nullptr) TRY_NCCL(connect, context_, device, theirs.data(), &sender_, &handle);
      if (receiver_ == nullptr) TRY_NCCL(accept, listener, &receiver_, &handle);
    }
    TRY_NCCL(close_listen, listener);
    return absl::OkStatus();
  }

  absl::Status Stream(size_t bytes, size_t count) override {
    if (absl::Status s = Room(bytes); !s.ok()) return s;
    if (control_.leads()) {
      absl::Status s = Run(Side::kSend, bytes, count);
      return s.ok() ? One(Side::kReceive, 0, 1) : s;
    }
    absl::Status s = Run(Side::kReceive, bytes, count);
    return s.ok() ? One(Side::kSend, 0, 1) : s;
  }

  // Works like NCCL's thread: receives are posted ahead, and work that the answer does not need is
  // done after the answer was sent.
  absl::StatusOr<std::vector<Duration>> PingPong(size_t bytes, size_t count) override {
    if (absl::Status s = Room(bytes); !s.ok()) return s;
    std::array<void*, kDepth> posted{};
    void* sent = nullptr;
    size_t next = 0;  // the next receive to post
    size_t come = 0;
    const auto post = [&]() -> absl::Status {
      for (; next < std::min(count, come + kDepth); ++next) {
        void*& request = posted[next % kDepth];
        if (absl::Status s = Must(Side::kReceive, next % kDepth, bytes, &request); !s.ok())
          return s;
      }
      return absl::OkStatus();
    };
    const auto send = [&]() -> absl::Status {
      void* const before = sent;
      if (absl::Status s = Must(Side::kSend, kDepth, bytes, &sent); !s.ok()) return s;
      if (before != nullptr) {
        if (absl::Status s = Wait(before); !s.ok()) return s;
      }
      return post();
    };
    if (absl::Status s = post(); !s.ok()) return s;
    std::vector<Duration> took(count);
    // Read the clock once per round trip: an emulated clock costs as much as a poll.
    Time last = Now();
    for (Duration& one : took) {
      if (control_.leads()) {
        if (absl::Status s = send(); !s.ok()) return s;
      }
      if (absl::Status s = Wait(posted[come++ % kDepth]); !s.ok()) return s;
      if (!control_.leads()) {
        if (absl::Status s = send(); !s.ok()) return s;
      }
      const Time now = Now();
      one = now - std::exchange(last, now);
    }
    if (absl::Status s = Wait(sent); !s.ok()) return s;
    return took;
  }

 private:
  enum class Side { kSend, kReceive };
  // NCCL's buffers also begin at a page.
  struct alignas(4096) Page {
    std::array<char, 4096> bytes{};
  };

  // Registers buffers of `bytes` bytes on both connections. Large enough earlier buffers are
  // reused.
  absl::Status Room(size_t bytes) {
    const size_t pages = (bytes * (kDepth + 1) + sizeof(Page) - 1) / sizeof(Page);
    if (pages_.size() >= pages) return absl::OkStatus();
    Forget();
    pages_.resize(pages);
    for (const auto& [comm, mr] :
         {std::pair(sender_, &send_mr_), std::pair(receiver_, &receive_mr_)}) {
      TRY_NCCL(reg_mr, comm, pages_.data(), pages * sizeof(Page), net::kPtrHost, mr);
    }
    return absl::OkStatus();
  }
  void Forget() {
    if (pages_.empty()) return;
    api_->dereg_mr(sender_, send_mr_);
    api_->dereg_mr(receiver_, receive_mr_);
    pages_.clear();
  }
  // `request` stays null if the plugin has no room.
  absl::Status Post(Side side, size_t buffer, size_t bytes, void** request) {
    *request = nullptr;
    void* data = reinterpret_cast<char*>(pages_.data()) + buffer * bytes;
    int tag = 0;
    void* profile = nullptr;
    if (side == Side::kSend) {
      TRY_NCCL(isend, sender_, data, bytes, tag, send_mr_, nullptr, request);
    } else {
      TRY_NCCL(irecv, receiver_, 1, &data, &bytes, &tag, &receive_mr_, &profile, request);
    }
    return absl::OkStatus();
  }
  absl::Status Must(Side side, size_t buffer, size_t bytes, void** request) {
    do {
      if (absl::Status s = Post(side, buffer, bytes, request); !s.ok()) return s;
    } while (*request == nullptr);
    return absl::OkStatus();
  }
  absl::Status Wait(void* request) {
    for (int done = 0; done == 0;) TRY_NCCL(test, request, &done, nullptr);
    return absl::OkStatus();
  }
  absl::Status One(Side side, size_t buffer, size_t bytes) {
    void* request = nullptr;
    absl::Status s = Must(side, buffer, bytes, &request);
    return s.ok() ? Wait(request) : s;
  }
  // Runs up to kDepth operations at a time.
  absl::Status Run(Side side, size_t bytes, size_t count) {
    std::array<void*, kDepth> requests{};
    const Time begin = Now();
    size_t posted = 0;
    size_t done = 0;
    while (done < count) {
      bool moved = false;
      void*& next = requests[posted % kDepth];
      if (posted < count && next == nullptr) {
        if (absl::Status s = Post(side, posted % kDepth, bytes, &next); !s.ok()) return s;
        if (next != nullptr) {
          ++posted;
          moved = true;
        }
      }
      if (done < posted) {
        int through = 0;
        TRY_NCCL(test, requests[done % kDepth], &through, nullptr);
        if (through != 0) {
          requests[done++ % kDepth] = nullptr;
          moved = true;
        }
      }
      if (!moved) Idle(side, begin, done);
    }
    return absl::OkStatus();
  }
  // Yields the processor, like NCCL's thread. With `naps` a receiver sleeps instead for the average
  // time of two of the eight messages in flight.
  void Idle(Side side, Time begin, size_t done) const {
    if (side == Side::kReceive && end_.naps) {
      std::this_thread::sleep_for(2 * (Now() - begin) /
                                  static_cast<int64_t>(std::max<size_t>(done, 1)));
    } else {
      sched_yield();
    }
  }

  const Control control_;
  const NetV11* const api_;
  const PluginEnd end_;
  void* context_ = nullptr;
  void* sender_ = nullptr;
  void* receiver_ = nullptr;
  std::vector<Page> pages_;
  void* send_mr_ = nullptr;
  void* receive_mr_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Way>> ThroughPlugin(const Control& control, const std::string& path,
                                                   const PluginEnd& end) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::NotFoundError(dlerror());
  const auto* api = static_cast<const NetV11*>(dlsym(library, "ncclNetPlugin_v11"));
  if (api == nullptr) return absl::NotFoundError(dlerror());
  auto plugin = std::make_unique<Plugin>(control, api, end);
  if (absl::Status s = plugin->Start(); !s.ok()) return s;
  return plugin;
}

}  // namespace rewire::bench
