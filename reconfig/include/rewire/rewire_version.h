/* The version of Rewire, for checks by the preprocessor. CMakeLists.txt reads it from here. */
#ifndef REWIRE_VERSION_H_
#define REWIRE_VERSION_H_

#define REWIRE_VERSION_MAJOR 0
#define REWIRE_VERSION_MINOR 1
#define REWIRE_VERSION_PATCH 0

#endif /* REWIRE_VERSION_H_ */
