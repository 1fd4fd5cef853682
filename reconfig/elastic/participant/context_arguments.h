// Checks the arguments of a call that has a context, which is checked first:
//   ContextArguments("rewireX").Context(context).NotNull("id", id).result();
// Thread-compatible.
#pragma once

#include "reconfig/api/arguments.h"
#include "reconfig/elastic/participant/context.h"

namespace rewire::elastic {

class ContextArguments : public Arguments {
 public:
  using Arguments::Arguments;

  ContextArguments& Context(const rewireContext* context) {
    NotNull("context", context);
    if (result_ == rewireSuccess && context->detached) {
      result_ = Fail(rewireInvalidUsage, absl::StrCat(function_, ": context has been detached"));
    }
    return *this;
  }
  // The call is not made from inside a function that rewireUpdate() or rewireRecover() calls.
  ContextArguments& Outside(const rewireContext* context) {
    if (result_ == rewireSuccess && context->inside != nullptr) {
      result_ =
          Fail(rewireInvalidUsage, absl::StrCat(function_, ": called inside ", context->inside));
    }
    return *this;
  }
};

}  // namespace rewire::elastic
