package applier;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Lays records of one partition out as Python reads them, without a call or a row for each (consume/kafka/records.py):
 * a block of six columns, numbers in little endian. These are offsets and timestamps of 8 bytes each, sizes of keys and of
 * values of 4 (-1: there is none), bytes of the keys, bytes of the values.
 *
 * Janino compiles it, which knows generics only as casts.
 */
public abstract class RecordColumns {
  private static final int OFFSET = 0;
  private static final int TIMESTAMP = 1;
  private static final int KEY_SIZE = 2;
  private static final int VALUE_SIZE = 3;

  /** Bytes of a record besides its key and its value. */
  public static final int FIXED_BYTES = 24;

  private final ByteBuffer buffer;

  protected RecordColumns(ByteBuffer buffer) {
    this.buffer = buffer.order(ByteOrder.LITTLE_ENDIAN);
  }

  /** Make room: take what the buffer holds from its beginning to its position, and clear it. */
  protected abstract void flush() throws IOException;

  /** What Python is told of a block: topic, partition, number of records, bytes of keys and of values. */
  public static StringBuilder head(TopicPartition place, List records) {
    long keys = 0;
    long values = 0;
    for (Object record : records) {
      keys += Math.max(0, ((ConsumerRecord) record).serializedKeySize());
      values += Math.max(0, ((ConsumerRecord) record).serializedValueSize());
    }
    StringBuilder head = new StringBuilder(place.topic()).append(' ').append(place.partition());
    return head.append(' ').append(records.size()).append(' ').append(keys).append(' ').append(values);
  }

  protected void append(List records) throws IOException {
    for (int column = OFFSET; column <= VALUE_SIZE; column++) {
      for (Object record : records) {
        put((ConsumerRecord) record, column);
      }
    }
    for (Object record : records) {
      put((ByteBuffer) ((ConsumerRecord) record).key());
    }
    for (Object record : records) {
      put((ByteBuffer) ((ConsumerRecord) record).value());
    }
  }

  private void put(ConsumerRecord record, int column) throws IOException {
    if (buffer.remaining() < (column <= TIMESTAMP ? 8 : 4)) {
      flush();
    }
    if (column == OFFSET) {
      buffer.putLong(record.offset());
    } else if (column == TIMESTAMP) {
      buffer.putLong(record.timestamp());
    } else {
      buffer.putInt(column == KEY_SIZE ? record.serializedKeySize() : record.serializedValueSize());
    }
  }

  /** In pieces of the buffer: a large one would take as much again, outside of the heap. */
  private void put(ByteBuffer bytes) throws IOException {
    if (bytes == null) {
      return;
    }
    ByteBuffer rest = (ByteBuffer) bytes.duplicate();
    int last = rest.limit();
    while (rest.position() < last) {
      if (!buffer.hasRemaining()) {
        flush();
      }
      rest.limit(Math.min(last, rest.position() + buffer.remaining()));
      buffer.put(rest);
    }
  }
}
