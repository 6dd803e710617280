// What spymemcached has calls for in the text protocol, against the server at HOST PORT.
//
// Prints the number of checks and exits with 0. Run by `java -cp spymemcached.jar SpymemcachedAll.java HOST PORT`.

import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.internal.OperationFuture;

public class SpymemcachedAll {
  private static int checks = 0;

  private static void same(Object found, Object wanted, String what) {
    checks++;
    if (!Objects.deepEquals(found, wanted)) {
      System.out.println(what + ": " + found + " instead of " + wanted);
      System.exit(1);
    }
  }

  private static <T> T done(OperationFuture<T> future) throws Exception {
    return future.get(60, TimeUnit.SECONDS);
  }

  private static void writes(MemcachedClient client) throws Exception {
    same(done(client.set("w", 0, "1")), true, "set");
    same(client.get("w"), "1", "get after set");
    same(done(client.add("w", 0, "2")), false, "add of what is there");
    same(done(client.add("fresh", 0, "2")), true, "add");
    same(done(client.replace("absent", 0, "3")), false, "replace of what is not there");
    same(done(client.replace("w", 0, "3")), true, "replace");
    same(done(client.append("w", "4")), true, "append");
    same(done(client.prepend("w", "2")), true, "prepend");
    same(client.get("w"), "234", "get after append and prepend");
    byte[] large = new byte[900_000];
    for (int index = 0; index < large.length; index++) {
      large[index] = (byte) (index * 31 ^ index >> 7);
    }
    same(done(client.set("large", 0, large)), true, "set of a large value");
    same(client.get("large"), large, "get of a large value");
    for (Object value : Arrays.asList(7, 1L << 40, 1.5, true, "x".repeat(100_000))) {
      same(done(client.set("typed", 0, value)), true, "set of a " + value.getClass());
      same(client.get("typed"), value, "get of a " + value.getClass());
    }
    same(client.get("absent"), null, "get of what is not there");
  }

  private static void numbers(MemcachedClient client) throws Exception {
    same(done(client.set("n", 0, "98")), true, "set of a number");
    same(client.incr("n", 3), 101L, "incr");
    same(client.decr("n", 1), 100L, "decr");
    same(client.incr("absent", 1), -1L, "incr of what is not there");
    same(client.incr("made", 1, 5), 5L, "incr with a default");
    same(client.incr("made", 1, 5), 6L, "incr of what it has made");
  }

  private static void many(MemcachedClient client) throws Exception {
    Map<String, Object> items = new TreeMap<>();
    for (int index = 0; index < 2000; index++) {
      items.put("many-" + index, String.valueOf(index).repeat(index % 60));
    }
    Collection<OperationFuture<Boolean>> sets = new java.util.ArrayList<>();
    items.forEach((key, value) -> sets.add(client.set(key, 0, value)));
    for (OperationFuture<Boolean> set : sets) {
      same(done(set), true, "one of many sets");
    }
    same(new TreeMap<>(client.getBulk(items.keySet())), items, "getBulk");
  }

  private static void compareAndSwap(MemcachedClient client) throws Exception {
    same(done(client.set("c", 0, "old")), true, "set");
    CASValue<Object> found = client.gets("c");
    same(found.getValue(), "old", "gets");
    same(client.cas("c", found.getCas(), "new"), CASResponse.OK, "cas");
    same(client.cas("c", found.getCas(), "newer"), CASResponse.EXISTS, "cas of what has changed");
    same(client.cas("absent", found.getCas(), "x"), CASResponse.NOT_FOUND, "cas of what is not there");
    same(client.get("c"), "new", "get after cas");
  }

  private static void theRest(MemcachedClient client) throws Exception {
    same(done(client.touch("w", 1000)), true, "touch");
    same(done(client.delete("w")), true, "delete");
    same(done(client.delete("w")), false, "delete of what is not there");
    Map<String, String> stats = new HashMap<>(client.getStats().values().iterator().next());
    same(Integer.parseInt(stats.get("curr_items")) > 2000, true, "stats");
    same(client.getStats("settings").values().iterator().next().get("cas_enabled"), "yes", "stats settings");
    same(client.getVersions().values().iterator().next().startsWith("1."), true, "versions");
    same(done(client.flush()), true, "flush");
    same(client.get("c"), null, "get after flush");
  }

  public static void main(String[] arguments) throws Exception {
    System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
    java.util.logging.Logger.getLogger("net.spy.memcached").setLevel(java.util.logging.Level.OFF);
    MemcachedClient client =
        new MemcachedClient(new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1])));
    writes(client);
    numbers(client);
    many(client);
    compareAndSwap(client);
    theRest(client);
    client.shutdown();
    System.out.println(checks + " checks");
  }
}
