// The plugin as NCCL's proxy uses it: a connection each way, receives posted ahead, sends and
// receives tested in turn.
#include <dlfcn.h>
#include <sched.h>

#include <array>
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
  Plugin(const Control& control, const NetV11* api) : control_(control), api_(api) {}
  ~Plugin() override {
    if (sender_ != nullptr) api_->close_send(sender_);
    if (receiver_ != nullptr) api_->close_recv(receiver_);
    api_->finalize(context_);
  }

  absl::Status Start() {
    TRY_NCCL(init, &context_, 1, nullptr, nullptr, nullptr);
    std::array<char, net::kHandleBytes> mine{};
    std::array<char, net::kHandleBytes> theirs{};
    void* listener = nullptr;
    TRY_NCCL(listen, context_, 0, mine.data(), &listener);
    control_.Send(mine.data(), mine.size());
    control_.Receive(theirs.data(), theirs.size());
    while (sender_ == nullptr || receiver_ == nullptr) {
      void* device = nullptr;
      if (sender_ == nullptr) TRY_NCCL(connect, context_, 0, theirs.data(), &sender_, &device);
      if (receiver_ == nullptr) TRY_NCCL(accept, listener, &receiver_, &device);
    }
    TRY_NCCL(close_listen, listener);
    return absl::OkStatus();
  }

  absl::Status Stream(size_t bytes, size_t count) override {
    buffer_.resize(bytes * kDepth);
    char byte = 0;
    if (control_.leads()) {
      absl::Status s = Run(sender_, true, bytes, count);
      return s.ok() ? One(receiver_, false, &byte, 1) : s;
    }
    absl::Status s = Run(receiver_, false, bytes, count);
    return s.ok() ? One(sender_, true, &byte, 1) : s;
  }

  absl::Status PingPong(size_t bytes, size_t count) override {
    std::vector<char> in(bytes);
    std::vector<char> out(bytes);
    void* posted = nullptr;
    if (absl::Status s = Post(receiver_, false, in.data(), bytes, &posted); !s.ok()) return s;
    for (size_t i = 0; i < count; ++i) {
      if (control_.leads()) {
        if (absl::Status s = One(sender_, true, out.data(), bytes); !s.ok()) return s;
      }
      if (absl::Status s = Wait(posted); !s.ok()) return s;
      if (i + 1 < count) {
        if (absl::Status s = Post(receiver_, false, in.data(), bytes, &posted); !s.ok()) return s;
      }
      if (!control_.leads()) {
        if (absl::Status s = One(sender_, true, out.data(), bytes); !s.ok()) return s;
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Post(void* comm, bool send, void* data, size_t bytes, void** request) {
    *request = nullptr;
    int tag = 0;
    void* mr = nullptr;
    void* profile = nullptr;
    if (send) {
      TRY_NCCL(isend, comm, data, bytes, tag, mr, nullptr, request);
    } else {
      TRY_NCCL(irecv, comm, 1, &data, &bytes, &tag, &mr, &profile, request);
    }
    return absl::OkStatus();
  }
  absl::Status Wait(void* request) {
    for (int done = 0; done == 0;) TRY_NCCL(test, request, &done, nullptr);
    return absl::OkStatus();
  }
  absl::Status One(void* comm, bool send, void* data, size_t bytes) {
    void* request = nullptr;
    while (request == nullptr) {
      if (absl::Status s = Post(comm, send, data, bytes, &request); !s.ok()) return s;
    }
    return Wait(request);
  }
  // Several at a time. What has nothing to do lets others run, as NCCL's thread does.
  absl::Status Run(void* comm, bool send, size_t bytes, size_t count) {
    std::array<void*, kDepth> requests{};
    size_t posted = 0;
    size_t done = 0;
    while (done < count) {
      bool moved = false;
      void*& next = requests[posted % kDepth];
      if (posted < count && next == nullptr) {
        char* at = buffer_.data() + bytes * (posted % kDepth);
        if (absl::Status s = Post(comm, send, at, bytes, &next); !s.ok()) return s;
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
      if (!moved) sched_yield();
    }
    return absl::OkStatus();
  }

  const Control control_;
  const NetV11* const api_;
  void* context_ = nullptr;
  void* sender_ = nullptr;
  void* receiver_ = nullptr;
  std::vector<char> buffer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Way>> ThroughPlugin(const Control& control,
                                                   const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::NotFoundError(dlerror());
  const auto* api = static_cast<const NetV11*>(dlsym(library, "ncclNetPlugin_v11"));
  if (api == nullptr) return absl::NotFoundError(dlerror());
  auto plugin = std::make_unique<Plugin>(control, api);
  if (absl::Status s = plugin->Start(); !s.ok()) return s;
  return plugin;
}

}  // namespace rewire::bench
