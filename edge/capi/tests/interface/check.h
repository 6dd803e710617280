/* check.h - what the programs of these tests have in common */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <yonder.h>

/* Ends the program with a line if a condition does not hold. */
#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			printf("WRONG at %d: %s (errno %d, '%s')\n", __LINE__, #condition, errno, \
			       yonder_error_message()); \
			exit(1); \
		} \
	} while (0)

#endif /* CHECK_H */
