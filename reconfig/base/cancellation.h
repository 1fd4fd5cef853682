// Postpones pthread_cancel() of the calling thread. For code of the program's threads that must not
// be left by unwinding: C entries, log lines, and all work under `noexcept`, where the unwinding of
// a cancelled thread would end the process. Any thread; objects may nest. Needs libc only.
#pragma once

#include <pthread.h>

namespace rewire {

// A request to cancel the thread waits until the object's end, and takes effect at the thread's
// next cancellation point after that.
class PostponedCancellation {
 public:
  PostponedCancellation() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~PostponedCancellation() {
    int disabled = 0;
    pthread_setcancelstate(before_, &disabled);
  }
  PostponedCancellation(const PostponedCancellation&) = delete;
  PostponedCancellation& operator=(const PostponedCancellation&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace rewire
