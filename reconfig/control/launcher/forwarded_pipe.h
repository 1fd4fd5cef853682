// The output of one child, which arrives through a pipe and goes to the launcher's own output with
// a prefix before each line. Owned by the launcher's thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "reconfig/base/unique_fd.h"
#include "reconfig/control/launcher/line_prefix.h"
#include "reconfig/control/launcher/output.h"

namespace rewire::control {

class ForwardedPipe {
 public:
  // Makes the pipe, close-on-exec at both ends; `*child` is the end that the child writes. `to`
  // outlives the object.
  static absl::StatusOr<ForwardedPipe> Make(std::string prefix, Output* to, UniqueFd* child);

  [[nodiscard]] int fd() const { return fd_.get(); }
  // Returns whether to poll fd() for input: the stream has not ended, and its output is not full.
  [[nodiscard]] bool wanted() const { return fd_.valid() && !to_->full(); }
  // Forwards what one read returns.
  void Read() { (void)ReadOnce(); }
  // Forwards what is in the pipe, and closes the pipe.
  void ReadToTheEnd();

 private:
  ForwardedPipe(UniqueFd fd, std::string prefix, Output* to)
      : fd_(std::move(fd)), lines_(std::move(prefix)), to_(to) {}
  // Returns false when the pipe is empty or at its end.
  bool ReadOnce();
  void Close();

  UniqueFd fd_;
  LinePrefix lines_;
  Output* to_;
};

}  // namespace rewire::control
