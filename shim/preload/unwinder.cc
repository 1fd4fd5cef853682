// The unwinder's functions, for the C++ runtime inside the preloaded library. Each forwards to
// libgcc_s, so that the process has one unwinder. Called by the compiler's code while a cancelled
// thread or an exception unwinds, on that thread.
//
// pthread_cancel() unwinds with libgcc_s and passes that library's context to the frames of this
// library. A second, static unwinder does not know the context and aborts the process. This library
// needs libc alone, so that libgcc_s is loaded at the first use. The C library does the same.
//
// The static library of the tests lacks these functions, because programs link libgcc_s.
#ifdef REWIRE_PROFILING_NAMES

#include <dlfcn.h>
#include <unistd.h>
#include <unwind.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace {

[[noreturn]] void NoUnwinder(const char* what) {
  constexpr char kText[] = "REWIRE ERROR unwind a thread: libgcc_s.so.1 is missing: ";
  // Without an unwinder there is nothing else that can be done here.
  (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
  (void)!write(STDERR_FILENO, what, strlen(what));
  (void)!write(STDERR_FILENO, "\n", 1);
  abort();
}

// A function of libgcc_s. Constant-initialised; thread-safe.
template <typename Function>
class Forward {
 public:
  constexpr explicit Forward(const char* name) : name_(name) {}
  Function Get() {
    Function found = found_.load(std::memory_order_acquire);
    if (found != nullptr) return found;
    void* library = dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL);
    void* symbol = library == nullptr ? nullptr : dlsym(library, name_);
    if (symbol == nullptr) NoUnwinder(name_);
    found = reinterpret_cast<Function>(symbol);
    found_.store(found, std::memory_order_release);
    return found;
  }

 private:
  const char* const name_;
  std::atomic<Function> found_{nullptr};
};

}  // namespace

#define REWIRE_FORWARD(result, name, parameters, arguments)   \
  result name parameters {                                    \
    static constinit Forward<decltype(&name)> forward(#name); \
    return forward.Get() arguments;                           \
  }

extern "C" {

REWIRE_FORWARD(_Unwind_Reason_Code, _Unwind_RaiseException, (_Unwind_Exception * exception),
               (exception))
REWIRE_FORWARD(_Unwind_Reason_Code, _Unwind_Resume_or_Rethrow, (_Unwind_Exception * exception),
               (exception))
REWIRE_FORWARD(void, _Unwind_DeleteException, (_Unwind_Exception * exception), (exception))
REWIRE_FORWARD(_Unwind_Word, _Unwind_GetGR, (_Unwind_Context * context, int index),
               (context, index))
REWIRE_FORWARD(void, _Unwind_SetGR, (_Unwind_Context * context, int index, _Unwind_Word value),
               (context, index, value))
REWIRE_FORWARD(_Unwind_Ptr, _Unwind_GetIP, (_Unwind_Context * context), (context))
REWIRE_FORWARD(_Unwind_Ptr, _Unwind_GetIPInfo, (_Unwind_Context * context, int* before),
               (context, before))
REWIRE_FORWARD(void, _Unwind_SetIP, (_Unwind_Context * context, _Unwind_Ptr value),
               (context, value))
REWIRE_FORWARD(_Unwind_Word, _Unwind_GetCFA, (_Unwind_Context * context), (context))
REWIRE_FORWARD(void*, _Unwind_GetLanguageSpecificData, (_Unwind_Context * context), (context))
REWIRE_FORWARD(_Unwind_Ptr, _Unwind_GetRegionStart, (_Unwind_Context * context), (context))
REWIRE_FORWARD(_Unwind_Ptr, _Unwind_GetDataRelBase, (_Unwind_Context * context), (context))
REWIRE_FORWARD(_Unwind_Ptr, _Unwind_GetTextRelBase, (_Unwind_Context * context), (context))

void _Unwind_Resume(_Unwind_Exception* exception) {
  static constinit Forward<void (*)(_Unwind_Exception*)> forward("_Unwind_Resume");
  forward.Get()(exception);
  abort();  // libgcc_s does not return
}

}  // extern "C"

#endif
