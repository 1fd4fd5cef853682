#include "reconfig/base/cancellation.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "reconfig/base/log.h"

namespace rewire {
namespace {

// Runs the function on a thread that has been cancelled already. Returns whether the thread ended
// by that request.
bool EndsCancelled(const std::function<void()>& run) {
  pthread_t thread{};
  const auto start = [](void* function) -> void* {
    pthread_cancel(pthread_self());
    (*static_cast<const std::function<void()>*>(function))();
    return nullptr;
  };
  void* argument = const_cast<std::function<void()>*>(&run);
  if (pthread_create(&thread, nullptr, start, argument) != 0) return false;
  void* ended = nullptr;
  pthread_join(thread, &ended);
  return ended == PTHREAD_CANCELED;
}

// A sanitizer reports the stack that the thread has unwound.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(PostponedCancellationTest, TakesEffectAfterTheOutermostObject) {
  int passed = 0;
  EXPECT_TRUE(EndsCancelled([&] {
    {
      const PostponedCancellation outer;
      {
        const PostponedCancellation inner;
        pthread_testcancel();
        ++passed;
      }
      pthread_testcancel();
      ++passed;
    }
    pthread_testcancel();
    ++passed;
  }));
  EXPECT_EQ(passed, 2);
}
#endif

TEST(PostponedCancellationTest, ALogLineDoesNotEndTheThread) {
  bool passed = false;
  EXPECT_FALSE(EndsCancelled([&]() noexcept {
    LogLine(LogLevel::kError, "a line of a cancelled thread");
    passed = true;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);  // also while the thread ends
  }));
  EXPECT_TRUE(passed);
}

}  // namespace
}  // namespace rewire
