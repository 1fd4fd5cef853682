#include "tests/simgpu/nccl/root.h"

#include <poll.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "tests/simgpu/nccl/abort.h"
#include "tests/simgpu/nccl/error.h"
#include "tests/simgpu/nccl/mailbox.h"

namespace simnccl {
namespace {

struct Session {
  std::map<int, sockaddr_in> registered;
  std::map<int, rewire::UniqueFd> waiting;  // key: the rank that is looked up
  int expected = 0;
  int answered = 0;
  bool broken = false;
};

void Answer(int fd, ncclResult_t result, const sockaddr_in& address) {
  const RootAnswer answer{result, address};
  // The answer fits into any new socket's buffer.
  (void)!::send(fd, &answer, sizeof(answer), MSG_NOSIGNAL);
}

class Root {
 public:
  ncclResult_t Mint(IdContent* content) REWIRE_EXCLUDES(mutex_) {
    rewire::MutexLock lock(&mutex_);
    // A forked child has the memory of a root but not its thread.
    if (pid_ != ::getpid()) {
      if (thread_.has_value()) (void)new std::thread(std::move(*thread_));
      thread_.reset();
      sessions_.clear();
      pid_ = ::getpid();
    }
    if (!thread_.has_value()) {
      mailbox_ = std::make_unique<Mailbox>();
      SIMNCCL_TRY(mailbox_->Open());
      stop_ = std::make_unique<Abort>();
      thread_.emplace([this] { Serve(); });
    }
    content->magic = IdContent::kMagic;
    if (::getrandom(&content->key, sizeof(content->key), 0) != sizeof(content->key)) {
      return Fail(ncclSystemError, "getrandom failed");
    }
    content->address = mailbox_->address();
    sessions_[content->key];
    return ncclSuccess;
  }

  void Stop() REWIRE_EXCLUDES(mutex_) {
    // In a forked child another thread of the parent may hold the mutex without end.
    if (pid_.load() != ::getpid()) return;
    std::optional<std::thread> thread;
    {
      rewire::MutexLock lock(&mutex_);
      if (!thread_.has_value()) return;
      stop_->Set();
      thread = std::move(thread_);
      thread_.reset();
    }
    thread->join();
  }

 private:
  void Serve() REWIRE_EXCLUDES(mutex_) {
    ::pthread_setname_np(::pthread_self(), "simnccl-root");
    for (;;) {
      std::vector<pollfd> fds;
      mailbox_->AppendPollFds(&fds);
      fds.push_back({stop_->fd(), POLLIN, 0});
      ::poll(fds.data(), fds.size(), 1000);
      rewire::MutexLock lock(&mutex_);
      Caller caller;
      while (mailbox_->TakeNow([](const Hello&) { return true; }, &caller)) {
        Receive(std::move(caller));
      }
      if (stop_->IsSet() || sessions_.empty()) {
        mailbox_.reset();
        // Stop() took the thread and joins it; nobody joins a thread that ends by itself.
        if (thread_.has_value()) thread_->detach();
        thread_.reset();
        return;
      }
    }
  }

  void Receive(Caller caller) REWIRE_REQUIRES(mutex_) {
    const Hello& hello = caller.hello;
    const auto it = sessions_.find(hello.key);
    if (it == sessions_.end() || hello.ranks <= 0) return;
    Session& session = it->second;
    if (session.expected == 0) session.expected = hello.ranks;
    if (hello.ranks != session.expected) {
      Fail(ncclInvalidUsage, "Bootstrap Root : ranks disagree about their number (%d, %d)",
           hello.ranks, session.expected);
      session.broken = true;
    }
    if (hello.kind == HelloKind::kRegister) {
      if (!session.registered.emplace(hello.from, hello.address).second) {
        Fail(ncclInvalidUsage, "Bootstrap Root : rank %d has already checked in", hello.from);
        session.broken = true;
      }
    } else if (hello.kind == HelloKind::kLookup) {
      if (!session.waiting.emplace(hello.from, std::move(caller.fd)).second) {
        session.broken = true;
      }
    }
    for (auto w = session.waiting.begin(); w != session.waiting.end();) {
      const auto r = session.registered.find(w->first);
      if (session.broken) {
        Answer(w->second.get(), ncclInvalidUsage, {});
      } else if (r != session.registered.end()) {
        Answer(w->second.get(), ncclSuccess, r->second);
      } else {
        ++w;
        continue;
      }
      ++session.answered;
      w = session.waiting.erase(w);
    }
    if (session.answered >= session.expected) sessions_.erase(it);
  }

  rewire::Mutex mutex_;
  std::atomic<pid_t> pid_{::getpid()};  // the process that the thread is in
  std::optional<std::thread> thread_ REWIRE_GUARDED_BY(mutex_);  // empty: no id is outstanding
  std::map<uint64_t, Session> sessions_ REWIRE_GUARDED_BY(mutex_);
  // Replaced only while no thread runs.
  std::unique_ptr<Mailbox> mailbox_;
  std::unique_ptr<Abort> stop_;
};

Root& TheRoot() {
  static auto* root = new Root;
  return *root;
}

// The thread must end before the library's code is unloaded.
__attribute__((destructor)) void StopRoot() { TheRoot().Stop(); }

}  // namespace

ncclResult_t MintId(ncclUniqueId* id) {
  IdContent content{};
  SIMNCCL_TRY(TheRoot().Mint(&content));
  static_assert(sizeof(content) <= sizeof(id->internal));
  std::memset(id->internal, 0, sizeof(id->internal));
  std::memcpy(id->internal, &content, sizeof(content));
  return ncclSuccess;
}

ncclResult_t ParseId(const ncclUniqueId& id, IdContent* content) {
  std::memcpy(content, id.internal, sizeof(*content));
  if (content->magic == IdContent::kMagic && content->address.sin_family == AF_INET) {
    return ncclSuccess;
  }
  return Fail(ncclInvalidArgument, "the unique id was not made by ncclGetUniqueId");
}

}  // namespace simnccl
