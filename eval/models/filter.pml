/* Peterson's filter lock for N processes: at most one is in the critical section.
 * N and the number of rounds set how many states there are.
 */
#ifndef N
#define N 4
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif

byte level[N];
byte waiting[N];
byte inside;
byte entered[N];

proctype user(byte me)
{
	byte l, k;
	do
	:: entered[me] < ROUNDS ->
		l = 1;
		do
		:: l < N ->
			level[me] = l;
			waiting[l] = me;
			k = 0;
			do
			:: k < N && (k == me || level[k] < l || waiting[l] != me) -> k++
			:: k == N -> break
			od;
			l++
		:: l == N -> break
		od;
		inside++;
		assert(inside == 1);
		inside--;
		level[me] = 0;
		entered[me]++
	:: entered[me] == ROUNDS -> break
	od
}

init {
	byte i = 0;
	atomic {
		do
		:: i < N -> run user(i); i++
		:: i == N -> break
		od
	}
}
