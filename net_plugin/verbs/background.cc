#include "net_plugin/verbs/background.h"

#include <pthread.h>

#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "reconfig/base/mutex.h"

namespace rewire::net {
namespace {

// Several threads, so that work that waits for one peer does not delay work for other peers.
constexpr int kThreads = 4;

class Background {
 public:
  Background(int threads, const char* name) : name_(name) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  }

  void Add(std::function<void()> work) {
    MutexLock lock(&mutex_);
    works_.push_back(std::move(work));
    added_.NotifyOne();
  }

 private:
  void Run() {
    pthread_setname_np(pthread_self(), name_);
    for (;;) {
      std::function<void()> work;
      {
        MutexLock lock(&mutex_);
        while (works_.empty()) added_.WaitUntil(&mutex_, Now() + seconds(60));
        work = std::move(works_.front());
        works_.pop_front();
      }
      work();
    }
  }

  const char* const name_;
  Mutex mutex_;
  CondVar added_;
  std::deque<std::function<void()>> works_ REWIRE_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace

void RunInBackground(std::function<void()> work) {
  static auto* const background = new Background(kThreads, "rewire-net-join");
  background->Add(std::move(work));
}

void RunCopy(std::function<void()> work) {
  static auto* const background = new Background(1, "rewire-net-copy");
  background->Add(std::move(work));
}

}  // namespace rewire::net
