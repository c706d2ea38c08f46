package applier;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.Partitioner;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.api.java.function.PairFlatMapFunction;
import scala.Tuple2;

/**
 * Sends pieces of rows that Spark keeps to the tasks that want them (consume/tasks/spark.py). A piece is bytes that begin
 * with its place: three numbers of 4 bytes.
 *
 * Janino compiles it, which knows generics only as casts.
 */
public class PieceRoutes extends Partitioner implements PairFlatMapFunction {
  private static final int PLACE = 12;

  private final byte[] routes;
  private final int targets;

  /**
   * @param routes places of pieces, each with the task that wants it, a number of 4 bytes in little endian
   * @param targets how many tasks want pieces
   */
  public PieceRoutes(byte[] routes, int targets) {
    this.routes = routes;
    this.targets = targets;
  }

  public int numPartitions() {
    return targets;
  }

  public int getPartition(Object target) {
    return ((Integer) target).intValue();
  }

  public Iterator call(Object pieces) {
    Map wanted = new HashMap();
    ByteBuffer numbers = ByteBuffer.wrap(routes).order(ByteOrder.LITTLE_ENDIAN);
    for (int at = 0; at < routes.length; at += PLACE + 4) {
      ByteBuffer place = ByteBuffer.wrap(routes, at, PLACE);
      List every = (List) wanted.get(place);
      if (every == null) {
        every = new ArrayList(1);
        wanted.put(place, every);
      }
      every.add(Integer.valueOf(numbers.getInt(at + PLACE)));
    }
    return new Routed((Iterator) pieces, wanted);
  }

  /** Pieces by target, one after the other: those of a task may lie on disk, and be more than memory holds. */
  private static class Routed implements Iterator {
    private final Iterator pieces;
    private final Map wanted;
    private Iterator targets = Collections.emptyIterator();
    private byte[] piece;

    Routed(Iterator pieces, Map wanted) {
      this.pieces = pieces;
      this.wanted = wanted;
    }

    public boolean hasNext() {
      while (!targets.hasNext() && pieces.hasNext()) {
        piece = (byte[]) pieces.next();
        List every = (List) wanted.get(ByteBuffer.wrap(piece, 0, PLACE));
        if (every != null) {
          targets = every.iterator();
        }
      }
      return targets.hasNext();
    }

    public Object next() {
      hasNext();
      return new Tuple2(targets.next(), piece);
    }

    public void remove() {
      throw new UnsupportedOperationException();
    }
  }

  /** Takes what a task found, which lies before its pieces. */
  public static class First implements FlatMapFunction {
    public Iterator call(Object pieces) {
      Iterator all = (Iterator) pieces;
      return all.hasNext() ? Collections.singletonList(all.next()).iterator() : all;
    }
  }
}
